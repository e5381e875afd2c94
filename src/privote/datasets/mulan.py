"""The Mulan collection: an .arff file of attributes, and an .xml file that names the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from privote.errors import InputError

from . import arff
from .records import MISSING, MultiLabelData
from .sources import MULAN, absent, opened

# Above this many cells (64 MiB of float32) a sparse file stays sparse under sparse="auto".
_CELLS = 1 << 24
_PARTS = ("-train", "-test")


def mulan(
    path: str | Path, xml: str | Path | None = None, *, sparse: bool | Literal["auto"] = "auto"
) -> MultiLabelData:
    """Read a data set of the Mulan collection.

    Parameters
    ----------
    path
        The .arff file (or .arff.gz), dense or sparse.
    xml
        The file that names the labels. By default it stands next to the .arff under the same name,
        without ``-train`` or ``-test``.
    sparse
        Whether ``X`` is a sparse ``csr_array``. ``"auto"``: if the file is sparse and the dense
        array would take more than 64 MiB.

    Returns
    -------
    MultiLabelData
        Labels in the order of the .xml; all other attributes are features, float32, with NaN where
        the file has ``?``. A nominal attribute is the number it is written as, or the place in its
        list of values. Mulan files name no records: an id is the file's name and a record's place
        in it.
    """
    file = Path(path)
    if sparse not in (True, False, "auto"):
        raise InputError("sparse", "must be True, False or 'auto'", sparse)
    with opened(file, MULAN) as lines:
        table = arff.read(lines, str(file))
    names = _label_names(_beside(file) if xml is None else Path(xml))
    places = {attribute.name: place for place, attribute in enumerate(table.attributes)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise InputError(f"{file} has no attribute {unknown[0]!r}, which its .xml names as a label")
    labels = np.array([places[name] for name in names], dtype=np.int64)
    features = np.setdiff1d(np.arange(len(table.attributes)), labels)
    stem = file.name.removesuffix(".gz").removesuffix(".arff")
    if table.dense is not None:
        X, values = table.dense[:, features].astype(np.float32), table.dense[:, labels]
        if sparse is True:
            X = _csr(X)
    else:
        values = np.asarray(_matrix(table, labels).toarray())
        X = _matrix(table, features).astype(np.float32)
        cells = X.shape[0] * X.shape[1]
        if sparse is False or (sparse == "auto" and cells <= _CELLS):
            X = np.asarray(X.toarray())
    return MultiLabelData(
        X=X,
        Y=_votes(values, names, file),
        label_names=names,
        feature_names=tuple(table.attributes[place].name for place in features),
        ids=np.array([f"{stem}:{row}" for row in range(len(values))], dtype=np.str_),
        name=stem,
    )


def _beside(file: Path) -> Path:
    """Return the .xml next to an .arff file."""
    stem = file.name.removesuffix(".gz").removesuffix(".arff")
    stems = [stem, *(stem.removesuffix(part) for part in _PARTS if stem.endswith(part))]
    for candidate in stems:
        xml = file.with_name(f"{candidate}.xml")
        if xml.is_file():
            return xml
    raise absent(f"the file {file.with_name(stems[-1] + '.xml')} that names the labels", MULAN)


def _label_names(xml: Path) -> tuple[str, ...]:
    if not xml.is_file():
        raise absent(f"the file {xml} that names the labels", MULAN)
    try:
        tree = ElementTree.parse(xml)
    except ElementTree.ParseError as error:
        raise InputError(f"{xml} is not XML: {error}") from None
    # Labels may stand within labels (a hierarchy); the order is that of the document.
    found = [node for node in tree.iter() if node.tag.rpartition("}")[2] == "label"]
    names = tuple(node.get("name", "") for node in found)
    if not names or "" in names or len(set(names)) != len(names):
        raise InputError(f"{xml} must name one or more different labels, got {names}")
    return names


def _votes(
    values: npt.NDArray[np.float64], names: tuple[str, ...], file: Path
) -> npt.NDArray[np.int8]:
    unknown = np.isnan(values)
    odd = np.argwhere(~unknown & (values != 0) & (values != 1))
    if len(odd):
        row, label = odd[0]
        raise InputError(
            f"{file}: a label must be 0 or 1; {names[label]!r} of record {row} is "
            f"{values[row, label]:g}"
        )
    return np.where(unknown, MISSING, values).astype(np.int8)


def _matrix(table: arff.Table, chosen: npt.NDArray[np.int64]) -> Any:
    """Return some columns of a sparse table as a csr_array (records, chosen)."""
    from scipy.sparse import csc_array

    assert table.entries is not None
    count, rows, columns, values = table.entries
    place = np.full(len(table.attributes), -1)
    place[chosen] = np.arange(len(chosen))
    here = place[columns] >= 0
    rows, columns, values = rows[here], place[columns[here]], values[here]
    omitted = np.array([table.attributes[c].omitted for c in chosen])
    # What a row omits is not 0 for every attribute: such a column is written out in full.
    written = np.flatnonzero(omitted)
    if len(written):
        full = np.repeat(omitted[written][None], count, axis=0)
        mine = np.isin(columns, written)
        full[rows[mine], np.searchsorted(written, columns[mine])] = values[mine]
        rows = np.concatenate([rows[~mine], np.repeat(np.arange(count), len(written))])
        columns = np.concatenate([columns[~mine], np.tile(written, count)])
        values = np.concatenate([values[~mine], full.reshape(-1)])
    matrix = csc_array((values, (rows, columns)), shape=(count, len(chosen))).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _csr(X: npt.NDArray[np.float32]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(X)
