"""Puts an SVG drawing into a page: checked, with names of its own, and nothing loaded or run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from privote.errors import InputError

# What a drawing is made of. Anything else, a script or a link above all, is refused.
_STRUCTURE = ("svg", "g", "defs", "style", "title", "desc", "use", "symbol", "text", "tspan")
_SHAPES = ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "marker")
_PAINT = ("clipPath", "mask", "pattern", "linearGradient", "radialGradient", "stop")
_ELEMENTS = frozenset((*_STRUCTURE, *_SHAPES, *_PAINT))
_REFERENCE = re.compile(r"url\(\s*(['\"]?)#([^)'\"]+)\1\s*\)")
_LOADS = re.compile(r"url\(\s*['\"]?(?!#)|@import|expression\(|javascript:", re.IGNORECASE)


def inline_svg(svg: str, *, prefix: str, alt: str | None = None) -> str:
    """Return the drawing as an element for HTML.

    Parameters
    ----------
    svg
        The drawing as text.
    prefix
        Put before every id, so that two drawings on one page do not share names.
    alt
        The text for readers who cannot see it, instead of the drawing's own ``aria-label``.
    """
    if "<!DOCTYPE" in svg or "<!ENTITY" in svg:
        raise InputError("svg", "must not declare a document type or entities")
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise InputError("svg", f"must be well-formed XML: {error}") from None
    if _local(root.tag) != "svg":
        raise InputError("svg", f"must be an <svg> element, got <{_local(root.tag)}>")
    for element in root.iter():
        _settle(element, prefix)
    if alt is not None:
        root.set("aria-label", alt)
    if not root.get("aria-label", "").strip():
        raise InputError("alt", "must be given if the svg has no aria-label of its own")
    root.set("role", "img")
    return ElementTree.tostring(root, encoding="unicode")


def _settle(element: ElementTree.Element, prefix: str) -> None:
    """Check one element, and take namespaces out of its names: HTML knows them without."""
    element.tag = _local(element.tag)
    if element.tag not in _ELEMENTS:
        raise InputError(f"svg must be a plain drawing, got the element <{element.tag}>")
    if element.tag == "style":
        text = "".join(element.itertext())
        # Serialised as XML a "<" would be escaped, which HTML does not undo inside a style.
        if "<" in text or "&" in text or ">" in text or _LOADS.search(text):
            raise InputError("svg must not load anything from its style")
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        if name.lower().startswith("on") or _LOADS.search(value):
            raise InputError(f"svg must not run or load anything, got the attribute {name!r}")
        if name == "href" and not value.startswith("#"):
            raise InputError(f"svg must refer to its own parts only, got {name}={value!r}")
        element.set(name, _renamed(name, value, prefix))


def _renamed(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href":
        return f"#{prefix}{value[1:]}"
    return _REFERENCE.sub(lambda found: f"url(#{prefix}{found[2]})", value)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
