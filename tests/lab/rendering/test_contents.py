from orthosparse.lab.rendering.contents import plain_table


def test_a_plain_table_knows_its_words_from_its_numbers():
    table = plain_table(("layer", "score", "note"), [("fc", "1", "x")], text=(0, 2), roles=["eoi"])
    assert [column.text for column in table.columns] == [True, False, True]
    assert [cell.text for cell in table.rows[0].cells] == ["fc", "1", "x"]
    assert table.rows[0].role == "eoi"
