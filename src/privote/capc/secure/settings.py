"""The one configuration that the secure engine runs with, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import InputError

VERSION = "0.9.5"  # of spu: its layout of products and its storage types were checked for this one
_OT = {"softspoken": "YACL_Softspoken", "ferret": "YACL_Ferret"}

# Each would cost secrecy or exactness; the reason is part of the refusal.
FORBIDDEN = {
    "enable_runtime_snapshot": "writes the inputs to disk",
    "snapshot_dump_dir": "writes the inputs to disk",
    "enable_action_trace": "logs what is computed",
    "enable_pphlo_trace": "logs what is computed",
    "enable_pphlo_profile": "logs what is computed",
    "enable_hal_profile": "logs what is computed",
    "trunc_allow_msb_error": "makes results wrong at random",
    "enable_mul_lsb_error": "makes results wrong at random",
    "disable_matmul_pack": "answers a product with several ciphertexts, which leaks",
}
_PROTOCOLS = {
    "SEMI2K": "trusts one of the two parties with everything",
    "REF2K": "computes in clear",
    "ABY3": "needs three parties",
    "SECURENN": "needs three parties",
}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the engine: ``ot`` ("softspoken" or "ferret") and ``protocol``.

    Softspoken is quicker for short sessions; Ferret sends less.
    """
    known: dict[str, Any] = {"protocol": "CHEETAH", "ot": "softspoken"}
    for name, value in settings.items():
        if name in FORBIDDEN:
            if value:
                raise InputError(name, f"must be off: it {FORBIDDEN[name]}", value)
        elif name not in known:
            raise InputError("settings", f"must be among {sorted(known)}", name)
        else:
            known[name] = value
    if known["protocol"] != "CHEETAH":
        why = _PROTOCOLS.get(str(known["protocol"]), "is not known")
        raise InputError(f"protocol must be CHEETAH: {known['protocol']!r:.60} {why}")
    if known["ot"] not in _OT:
        raise InputError(f"ot must be softspoken or ferret, got {known['ot']!r:.60}")
    return known


def runtime_config(settings: Mapping[str, Any]) -> Any:
    """Return spu's RuntimeConfig, checked."""
    from spu import libspu

    wanted = {
        "protocol": settings["protocol"],
        "field": "FM64",
        "cheetah_2pc_config": {"ot_kind": _OT[settings["ot"]]},
        "experimental_enable_colocated_optimization": True,
        "experimental_disable_mmul_split": True,
    }
    config = libspu.RuntimeConfig()
    # From JSON: the Python binding of this version cannot set the kind of oblivious transfer.
    if not config.ParseFromJsonString(json.dumps(wanted)):
        raise InputError("settings", f"must be what spu understands, got {wanted}")
    check_config(config)
    return config


def check_config(config: Any) -> None:
    """Refuse a RuntimeConfig under which the engine would not be secure, or not exact."""
    from spu import libspu

    if config.protocol != libspu.ProtocolKind.CHEETAH:
        raise InputError(f"protocol must be CHEETAH, got {config.protocol}")
    if config.field != libspu.FieldType.FM64:
        raise InputError(f"field must be FM64, got {config.field}")
    for name, why in FORBIDDEN.items():
        owner = config if hasattr(config, name) else config.cheetah_2pc_config
        if getattr(owner, name):
            raise InputError(f"{name} must be off: it {why}")
    if not config.experimental_enable_colocated_optimization:
        raise InputError("experimental_enable_colocated_optimization must be on")


def link_description(own: str, other: str, side_rank: int, patience: float) -> Any:
    """Return where the two sides listen: unix sockets only, this side on ``own``."""
    from spu import libspu

    description = libspu.link.Desc()
    description.id = "privote"
    addresses = [f"unix:{own}", f"unix:{other}"]
    for rank, name in enumerate(("querier", "peer")):
        description.add_party(name, addresses[rank ^ side_rank])
    description.recv_timeout_ms = max(1000, int(1000 * patience))
    description.http_timeout_ms = 20_000
    description.connect_retry_times = 100
    description.connect_retry_interval_ms = 100
    description.retry_opts.max_retry = 1
    description.retry_opts.retry_interval_ms = 50
    return description
