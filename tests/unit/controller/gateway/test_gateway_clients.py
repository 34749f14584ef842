"""Whose fault a refusal is: a client is judged by what it meets at other cells."""

from __future__ import annotations

from headrace_controller.gateway.clients import CHARGED, EPOCH_S, MAX_POOLS, MAX_POOLS_OF_A_CELL, Clients


def test_who_is_refused_everywhere_charges_nobody() -> None:
    clients = Clients()
    charged = [clients.charge("m", cell, "bad", True, 0.0) for _ in range(50) for cell in "abc"]
    # Until it is known elsewhere a few count; after that none does.
    assert sum(charged) <= 3 * CHARGED
    assert not any(charged[12:])


def test_who_is_served_elsewhere_charges_in_full() -> None:
    clients = Clients()
    for _ in range(10):
        for cell in "ab":
            assert clients.charge("m", cell, "good", False, 0.0) == 0.0
    assert [clients.charge("m", "c", "good", True, 0.0) for _ in range(20)] == [1.0] * 20


def test_the_part_that_is_refused_elsewhere_is_the_clients_own() -> None:
    clients = Clients()
    for number in range(100):
        clients.charge("m", "a", "half", number % 2 == 0, 0.0)
    assert abs(clients.charge("m", "b", "half", True, 0.0) - 0.5) < 0.01


def test_a_client_that_is_bound_to_one_cell_cannot_evict_it() -> None:
    clients = Clients()
    assert sum(clients.charge("m", "a", "pinned", True, 0.0) for _ in range(500)) == CHARGED


def test_many_clients_charge_what_one_cannot() -> None:
    clients = Clients()
    assert sum(clients.charge("m", "a", f"10.0.0.{each}", True, 0.0) for each in range(200)) > 20


def test_what_a_client_did_long_ago_is_forgotten() -> None:
    clients = Clients()
    for _ in range(20):
        clients.charge("m", "a", "x", True, 0.0)
    for _ in range(20):
        clients.charge("m", "a", "x", False, 20 * EPOCH_S)
    assert clients.charge("m", "b", "x", True, 20 * EPOCH_S) > 0.99


def test_another_pool_is_another_matter_and_gone_cells_are_forgotten() -> None:
    clients = Clients()
    for _ in range(20):
        clients.charge("m", "a", "x", True, 0.0)
    assert clients.charge("other", "b", "x", True, 0.0) == 1.0
    clients.forget("a")
    assert clients._cells.keys() == {"b"}


def test_memory_is_bounded() -> None:
    clients = Clients()
    for number in range(MAX_POOLS + 100):
        clients.charge(f"m{number}", "a", "x", False, 0.0)
    assert len(clients._pools) == MAX_POOLS
    assert len(clients._cells["a"]) == MAX_POOLS_OF_A_CELL
