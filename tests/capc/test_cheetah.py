"""Compiled programs: what they may contain, and that both sides can tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from tests.refusals import refused

from privote.capc.engine import (
    SecureEngine,
    check_code,
    compile_program,
    digest,
    runtime_config,
)
from privote.capc.programs import AllowanceProgram, BallotProgram, DecisionProgram
from privote.errors import InputError, MissingExtraError

SECRET = "tensor<4x3x!pphlo.secret<i64>>"
HEAD = f"func.func @main(%arg0: {SECRET}) -> {SECRET} {{\n"


REFUSED = [
    "%1 = pphlo.reveal %arg0 : (tensor<4x3x!pphlo.secret<i64>>) -> tensor<4x3xi64>",
    "%1 = pphlo.custom_call @spu.dbg_print(%arg0) : (tensor<3xi64>) -> tensor<3xi64>",
    "%1 = pphlo.prefer_a %arg0 : tensor<4x3x!pphlo.secret<i64>>",
    "%1 = func.call @other(%arg0) : (tensor<3xi64>) -> tensor<3xi64>",
    f"%1 = pphlo.multiply %arg0, %arg0 : {SECRET}",
    f"%1 = pphlo.multiply %arg0, %2 : ({SECRET}, {SECRET}) -> {SECRET}",
    "%1 = pphlo.dot %0, %1 : (tensor<5x294x!pphlo.secret<i64>>, "
    "tensor<294x6x!pphlo.secret<i64>>) -> tensor<5x6x!pphlo.secret<i64>>",
    f"func.func @more(%arg0: {SECRET}) -> ({SECRET}, tensor<4x3xi64>) {{",  # an open result
]
ALLOWED = [
    f"%1 = pphlo.multiply %arg0, %2 : ({SECRET}, tensor<4x3xi64>) -> {SECRET}",
    "%1 = pphlo.dot %0, %1 : (tensor<6x294x!pphlo.secret<i64>>, "
    "tensor<294x6x!pphlo.secret<i64>>) -> tensor<6x6x!pphlo.secret<i64>>",
    "%1 = pphlo.dot %0, %1 : (tensor<900x900xi64>, tensor<900x60x!pphlo.secret<i64>>) -> "
    "tensor<900x60x!pphlo.secret<i64>>",
    f"%1 = pphlo.add %arg0, %arg0 : {SECRET}",
]


@pytest.mark.parametrize("line", REFUSED + ALLOWED)
def test_code_is_refused_that_opens_or_multiplies_secrets(line: str) -> None:
    with refused(None) if line in REFUSED else nullcontext():
        check_code(f"{HEAD}  {line}\n}}")


PROGRAMS = [
    BallotProgram(rows=4, features=8, labels=3),
    BallotProgram(rows=4, features=8, labels=3, weights=(0, 9, 7, 5)),
    DecisionProgram(rows=4, labels=3, gated=True),
    AllowanceProgram(rows=4, parties=2, voters=3, labels=3, gated=True, charged=(5, 5)),
    AllowanceProgram(rows=4, parties=2, voters=3, labels=3, grid=9, by_ballot=True),
]


class Product(DecisionProgram):
    def compute(self, xp: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"share": values["shares"] * values["masks"]}


class TestCompiled:
    @pytest.fixture(autouse=True)
    def _wide_integers(self) -> Iterator[None]:
        pytest.importorskip("spu", reason="spu needs Python 3.11 and the extra [capc]")
        import jax

        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        yield
        jax.config.update("jax_enable_x64", before)

    def test_products_that_may_leak_are_found_in_what_was_compiled(self) -> None:
        unsafe = BallotProgram(rows=5, features=294, labels=6)  # two ciphertexts would answer
        for program in (unsafe, Product(rows=4, labels=3)):
            with refused(None):
                compile_program(program)
        compile_program(unsafe.padded())

    def test_digest_tells_programs_and_settings_apart(self) -> None:
        config = runtime_config()
        ready = [(program, compile_program(program)) for program in PROGRAMS]
        digests = [digest([one], config) for one in ready]
        digests += [digest(ready, config), digest(ready[::-1], config)]
        other = runtime_config()
        other.experimental_disable_mmul_split = False
        digests.append(digest(ready, other))
        assert len(set(digests)) == len(digests)
        again = [(program, compile_program(program)) for program in PROGRAMS]
        assert digest(again, config) == digest(ready, config)

    def test_narrow_integers_refused(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", False)
        with pytest.raises(InputError, match="JAX_ENABLE_X64"):
            compile_program(PROGRAMS[0])


# -- the engine ------------------------------------------------------------------------------------


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.capc.engine.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"privote\[capc\]"):
        SecureEngine()


OFF = [
    *("enable_runtime_snapshot", "snapshot_dump_dir"),  # would write inputs to disk
    *("enable_action_trace", "enable_pphlo_trace", "enable_pphlo_profile", "enable_hal_profile"),
    *("trunc_allow_msb_error", "enable_mul_lsb_error"),  # would make results wrong at random
    "disable_matmul_pack",  # would answer a product with several ciphertexts, which leaks
]


def test_the_one_configuration_is_secure_and_exact() -> None:
    pytest.importorskip("spu", reason="spu needs Python 3.11 and the extra [capc]")
    from spu import libspu

    config = runtime_config()
    assert config.protocol == libspu.ProtocolKind.CHEETAH
    assert config.field == libspu.FieldType.FM64
    assert config.experimental_enable_colocated_optimization
    for name in OFF:
        owner = config if hasattr(config, name) else config.cheetah_2pc_config
        assert not getattr(owner, name), name
