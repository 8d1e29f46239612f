"""The colours of pages and figures: by role, for a light and a dark page."""

# Role: (light, dark). Figures are drawn with the light ones; on a page they become CSS variables of that name, so that
# no light colour may have two roles. Series colours keep their order of lightness under the common colour blindnesses.
COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#fdfdfc", "#14171b"),
    "panel": ("#ffffff", "#1b2026"),
    "ink": ("#1c2128", "#e8ebee"),
    "muted": ("#5d6672", "#9aa4b0"),
    "rule": ("#e1e4e8", "#2f363e"),
    "dense": ("#6f7a87", "#a3adb9"),
    "base": ("#cf4a2e", "#f0795f"),
    "ai": ("#b9860b", "#e3b341"),
    "eoi": ("#1f63c6", "#6ea8fe"),
    "sao": ("#0f7d62", "#4cc3a2"),
    "scaled": ("#8b4fb8", "#c69af0"),
}

# What the starts are called wherever a reader meets them.
LABELS = {"dense": "dense", "base": "base", "ai": "AI", "eoi": "EOI", "sao": "SAO", "scaled": "scaled"}
