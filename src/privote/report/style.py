"""How the page looks: one sheet, light and dark, screen and paper."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --ink: #1c2530; --soft: #56616f; --line: #d5dae1; --faint: #f4f6f8;
  --link: #00599c;
  --good: #00664b; --good-ground: #e3f3ee;
  --care: #6b4d00; --care-ground: #fbf1d6;
  --stop: #9c3a00; --stop-ground: #fdeadf;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #161b22; --ink: #e4e8ee; --soft: #a3adba; --line: #353d48; --faint: #1e252e;
    --link: #79bdf0;
    --good: #6fd3b1; --good-ground: #12332a;
    --care: #eac766; --care-ground: #362b0c;
    --stop: #f5a578; --stop-ground: #3d2213;
  }
}
* { box-sizing: border-box; }
html { background: var(--ground); color: var(--ink); -webkit-text-size-adjust: 100%; }
body {
  max-width: 46rem; margin: 0 auto; padding: 3.5rem 1.25rem 4rem;
  font: 1.0625rem/1.6 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif;
}
h1, h2, h3, th, dt, caption, figcaption, nav, footer, table, summary, .kicker, .notice,
.facts {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
.kicker {
  margin: 0 0 .6rem; font-size: .8rem; font-weight: 600; letter-spacing: .08em;
  text-transform: uppercase; color: var(--soft);
}
h1 { margin: 0 0 1rem; font-size: 2.05rem; line-height: 1.2; letter-spacing: -.015em;
  text-wrap: balance; }
.intro { font-size: 1.15rem; line-height: 1.55; color: var(--soft); }
.intro p { margin: 0 0 .8rem; }
header { padding-bottom: 1.2rem; border-bottom: 2px solid var(--ink); }
.notice {
  margin: 1rem 0 0; padding: .7rem 1rem; border-left: 4px solid var(--stop);
  background: var(--stop-ground); color: var(--stop); font-size: .95rem; line-height: 1.45;
}
nav { margin: 1.6rem 0 0; font-size: .95rem; }
nav h2 { margin: 0 0 .3rem; padding: 0; border: 0; font-size: .95rem; }
nav ol, nav ul { margin: 0; padding-left: 1.4rem; columns: 2 16rem; column-gap: 2rem; }
nav ul { padding-left: 0; list-style: none; }
nav li { padding: .1rem 0; break-inside: avoid; }
a { color: var(--link); text-underline-offset: .15em; }
h2 { margin: 3rem 0 .9rem; font-size: 1.35rem; line-height: 1.3; letter-spacing: -.01em;
  break-after: avoid; }
h2.part { margin: 4.5rem 0 0; padding-top: .8rem; border-top: 2px solid var(--ink);
  font-size: 1.6rem; }
h3 { margin: 2.6rem 0 .8rem; font-size: 1.2rem; line-height: 1.3; break-after: avoid; }
nav h3 { margin: .8rem 0 .2rem; font-size: .95rem; }
p { margin: 0 0 1rem; overflow-wrap: anywhere; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
.facts { display: flex; flex-wrap: wrap; gap: 1px;
  margin: 1.4rem 0 1.8rem; background: var(--line); border: 1px solid var(--line); }
.facts div { flex: 1 1 9.5rem; padding: .8rem 1rem .9rem; background: var(--ground);
  display: flex; flex-direction: column; justify-content: space-between; gap: .35rem; }
dt { font-size: .82rem; line-height: 1.3; color: var(--soft); }
dd { margin: 0; font-size: 1.4rem; line-height: 1.2; font-weight: 600;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
/* A wide table may stand out of the text on both sides; a wider one scrolls. */
.frame { margin: 1.6rem 0 2rem 50%; transform: translateX(-50%); width: max-content;
  min-width: 100%; max-width: min(62rem, 100vw - 2.5rem); overflow-x: auto; break-inside: avoid; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; line-height: 1.4; }
caption, figcaption { font-size: .92rem; line-height: 1.45; color: var(--soft); text-align: left; }
caption { padding-bottom: .7rem; }
caption b, figcaption b { color: var(--ink); }
th, td { padding: .5rem .75rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
/* On a narrow screen a caption stays in sight, and words at the end have room beside it. */
caption { max-width: min(43.5rem, 100vw - 2.5rem); }
td:last-child:not(.number) { min-width: 11rem; }
thead th { border-top: 2px solid var(--ink); border-bottom: 1px solid var(--ink);
  font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody tr:last-child > * { border-bottom: 2px solid var(--ink); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .number { white-space: pre-line; }
.mark { display: inline-block; padding: .05rem .5rem; border-radius: .2rem; font-size: .85rem;
  white-space: nowrap; }
.mark.open { color: var(--good); background: var(--good-ground); }
.mark.care { color: var(--care); background: var(--care-ground); }
.mark.sealed { color: var(--stop); background: var(--stop-ground); font-weight: 600; }
summary { margin: 0 0 1rem; cursor: pointer; color: var(--link); font-size: .95rem; }
figure { margin: 1.8rem 0 2.2rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: .6rem; }
pre { margin: 0 0 1.4rem; padding: .8rem 1rem; overflow-x: auto; background: var(--faint);
  border: 1px solid var(--line); font-size: .88rem; line-height: 1.5; }
code { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
footer { margin-top: 3.5rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-size: .85rem; color: var(--soft); }
@page sheet { margin: 1.2cm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  .frame { margin-left: 0; transform: none; width: 100%; max-width: none; }
  .mark, .notice { border: 1px solid; background: none; }
  .sheet { font-size: 8pt; line-height: 1.3; page: sheet; }
  .sheet h1 { font-size: 15pt; margin-bottom: .3rem; }
  .sheet h2 { font-size: 10pt; margin: .5rem 0 .2rem; }
  .sheet header, .sheet .intro p, .sheet p, .sheet .kicker { margin: 0 0 .3rem; padding: 0; }
  .sheet .intro, .sheet .notice, .sheet table, .sheet caption, .sheet figcaption { font-size: 8pt; }
  .sheet .notice { padding: .2rem .5rem; }
  .sheet .facts { margin: .4rem 0; flex-wrap: nowrap; }
  .sheet .facts div { padding: .2rem .5rem; flex-basis: 0; }
  .sheet dd { font-size: 10pt; }
  .sheet footer { font-size: 7pt; padding-top: .2rem; }
  .sheet footer p { margin: 0; }
  .sheet .frame, .sheet figure, .sheet footer { margin-top: .3rem; margin-bottom: .4rem; }
  .sheet th, .sheet td { padding: .1rem .4rem; }
  .sheet figure svg { max-height: 8cm; }
}
"""
