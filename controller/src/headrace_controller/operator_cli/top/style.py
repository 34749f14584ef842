"""How the interactive screen looks: the terminal's own colours, on light and dark ones alike."""

from __future__ import annotations

from typing import Final

CSS: Final = """
Screen { background: ansi_default; color: ansi_default; }
#state { height: auto; max-height: 4; text-style: bold; }
.stale { background: ansi_red; color: ansi_white; text-style: bold; }
CellList { height: 1fr; scrollbar-size: 0 0; background: ansi_default; }
#body { height: 1fr; scrollbar-size: 0 0; }
#search { height: 1; display: none; }
#about, #message, #help { height: 1; }
#help { text-style: dim; }
Confirm, Keys { align: center middle; background: transparent; }
.box { width: 78; max-width: 100%; height: auto; max-height: 100%; border: ascii ansi_default;
       padding: 0 1; background: ansi_default; }
.box Horizontal { height: 1; margin-top: 1; }
.box Input { margin-top: 1; }
.box Button { margin-right: 2; }
"""
