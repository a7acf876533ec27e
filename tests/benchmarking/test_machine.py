"""What a measurement says it was made on."""

from capszoo.benchmarking import machine


def test_generations_of_processors_of_one_name_are_told_apart(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nmodel name\t: another\n")
    assert machine._processor(path) == "AMD EPYC (family 26, model 2)"


def test_a_processor_without_family_has_its_name_only(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("model name\t: Virtual\n")
    assert machine._processor(path) == "Virtual"
    assert machine._processor(tmp_path / "missing")
