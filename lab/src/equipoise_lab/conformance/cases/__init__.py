"""All cases, by name."""

from equipoise_lab.conformance.case import Case
from equipoise_lab.conformance.cases import (
    evolution,
    frames,
    group_state,
    initial,
    lists_and_maps,
    timers,
    user_code,
    values,
)

CASES: dict[str, Case] = {
    **values.CASES,
    **lists_and_maps.CASES,
    **timers.CASES,
    **initial.CASES,
    **evolution.CASES,
    **frames.CASES,
    **group_state.CASES,
    **user_code.CASES,
}
