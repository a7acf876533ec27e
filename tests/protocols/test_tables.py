"""Results as tables for the terminal."""

from capszoo.protocols.tables import show, table_of


def test_names_of_runs_are_no_markup(capsys):
    show(table_of([{"run": "em [lr]", "error": "1 %"}, {"run": "em [/b]", "error": "2 %"}]))
    printed = capsys.readouterr().out
    assert "em [lr]" in printed
    assert "em [/b]" in printed
