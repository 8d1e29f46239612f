from orthosparse.lab.rendering.theme import COLOURS, LABELS


def test_every_start_has_a_colour_and_no_light_colour_has_two_roles():
    assert set(LABELS) <= set(COLOURS)
    assert len({shades[0] for shades in COLOURS.values()}) == len(COLOURS)


def test_text_stands_out_from_its_ground_on_both_pages():
    def luminance(colour):  # WCAG 2: relative luminance
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for shade in (0, 1):
        grounds = [luminance(COLOURS[name][shade]) for name in ("paper", "panel")]
        for role, least in {"ink": 7.0, "muted": 4.5, "eoi": 3.0, "base": 3.0, "ai": 3.0, "dense": 3.0}.items():
            colour = luminance(COLOURS[role][shade])
            contrast = min((max(colour, ground) + 0.05) / (min(colour, ground) + 0.05) for ground in grounds)
            assert contrast >= least, (role, shade, contrast)
