"""The paper, claim by claim: every theorem, table and figure, measured where that can be done.

``claims`` lists them; the modules beside it measure them by theme; ``runner`` runs, keeps and
resumes; ``page`` writes what was found. Run: python -m experiments.paper
"""
