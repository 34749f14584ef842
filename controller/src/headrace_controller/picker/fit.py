"""A least-squares fit of three figures, in plain floats: for so few, arrays cost ten times as much."""

from __future__ import annotations

from dataclasses import dataclass, field

Three = tuple[float, float, float]


@dataclass(slots=True)
class Fit:
    """Sums over weighted observations `value = x . figures`, with forgetting."""

    _moments: list[float] = field(default_factory=lambda: [0.0] * 6)
    _answers: list[float] = field(default_factory=lambda: [0.0] * 3)

    def add(self, x: Three, value: float, weight: float, keep: float) -> None:
        """Take in an observation; all before it count `keep` times as much as they did."""
        a, b, c = x
        products = (a * a, a * b, a * c, b * b, b * c, c * c)
        self.fade(keep)
        self._moments = [m + weight * p for m, p in zip(self._moments, products, strict=True)]
        self._answers = [m + weight * value * each for m, each in zip(self._answers, x, strict=True)]

    def fade(self, keep: float) -> None:
        """All observations count `keep` times as much as they did."""
        self._moments = [keep * m for m in self._moments]
        self._answers = [keep * m for m in self._answers]

    def solve(self, start: Three, trust: Three, size: Three | None = None) -> Three:
        """The figures, where each is at first known to be `start`, above 0, as surely as `trust`
        observations of it alone with an error of `size` would show; None = of the start's own."""
        aa, ab, ac, bb, bc, cc = self._moments
        # In units of their sizes the sums are alike, and what is divided by is at least their trust.
        p, q, r = size or start
        aa, bb, cc = aa * p * p + trust[0], bb * q * q + trust[1], cc * r * r + trust[2]
        ab, ac, bc = ab * p * q, ac * p * r, bc * q * r
        u, v, w = (
            m * s + t * each / s for m, s, t, each in zip(self._answers, (p, q, r), trust, start, strict=True)
        )
        d, e, f = bb * cc - bc * bc, ac * bc - ab * cc, ab * bc - ac * bb
        whole = aa * d + ab * e + ac * f
        x = (d * u + e * v + f * w) / whole
        y = (e * u + (aa * cc - ac * ac) * v + (ab * ac - aa * bc) * w) / whole
        z = (f * u + (ab * ac - aa * bc) * v + (aa * bb - ab * ab) * w) / whole
        return (x * p, y * q, z * r)
