"""Commands that measure what networks of Kiefer et al. 2022 and Smith et al. 2020 infer and generate."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from capszoo.cli.app import Trained, app, trained

Out = Annotated[Path, typer.Option(help="Folder that gets the report as JSON, and drawings.")]
Several = Annotated[list[str], typer.Argument(help="Presets with weights, or folders of runs.")]
DRAWN = 2  # pictures of a drawing of inferred poses
COLUMNS = 10  # pictures side by side


@app.command()
def sparsity(
    name: Trained,
    out: Out,
    images: Annotated[int, typer.Option(help="Number of test images.")] = 50,
    clamped: Annotated[bool, typer.Option(help="Clamp the label, as the paper does.")] = True,
    eta: Annotated[float, typer.Option(help="Weight of the L1 norm.")] = 1.0,
    stage: Annotated[str, typer.Option(help="The layer of capsules it is of.")] = "class_capsules",
    steps: Annotated[int, typer.Option(help="Steps of the descent.")] = 500,
):
    """Measure how sparse inferred activities are, with and without an L1 penalty (Kiefer et al. 2022, Figure 1)."""
    from capszoo import protocols
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols.tables import show, sparsity_table
    from capszoo.visualize import draw_inferred_poses

    subject = trained(name)
    options = {"penalty": {stage: eta}, "steps": steps}
    command = f"capszoo sparsity {name} --images {images} --{'' if clamped else 'no-'}clamped "
    command += f"--eta {eta:g} --stage {stage} --steps {steps} --out {out}"
    with TerminalProgress() as progress:
        report = protocols.measure_sparsity(
            subject, images, clamped=clamped, command=command, progress=progress, **options
        )
    show(sparsity_table(report))
    batch = subject.recipe.data.open("test").batch(np.arange(DRAWN), None)
    labels = batch["labels"] if clamped else None
    poses, _ = protocols.infer_activities(subject, batch["images"], labels, **options)
    drawn = {condition: layers["class_capsules"] for condition, layers in poses.items()}
    names = subject.recipe.data.class_names
    figure = draw_inferred_poses(batch["images"], drawn, batch["labels"], names)
    _write(report, out, "sparsity", {"inferred": figure})


@app.command()
def likelihood(
    names: Several,
    out: Out,
    images: Annotated[int, typer.Option(help="Number of test images.")] = 1000,
    samples: Annotated[int, typer.Option(help="Samples of the bound.")] = 50,
):
    """Measure how likely test images are to generative models beside a Gaussian; draw samples and parses."""
    from capszoo import protocols
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols.tables import likelihood_table, show
    from capszoo.visualize import draw_parse, draw_samples

    subjects = [trained(name) for name in names]
    command = f"capszoo likelihood {' '.join(names)} --images {images} --samples {samples} --out {out}"
    with TerminalProgress() as progress:
        report = protocols.measure_likelihood(subjects, images, samples, command=command, progress=progress)
    show(likelihood_table(report))
    first = subjects[0]
    pictures = first.recipe.data.open("test").batch(np.arange(8), None)["images"]
    drawings = {"parse": draw_parse(first.model, pictures), "samples": draw_samples(first.model)}
    _write(report, out, "likelihood", drawings)


@app.command("infer-freely")
def infer_freely(
    name: Trained,
    out: Out,
    images: Annotated[int, typer.Option(help="Number of test images.")] = 100,
    max_angle: Annotated[float, typer.Option(help="Digits are turned by up to so many degrees.")] = 180.0,
    steps: Annotated[int, typer.Option(help="Steps of Adam for each image.")] = 300,
):
    """Optimise the variables of each image by themselves, beside the network's answer (Smith et al. 2020, Figure 3)."""
    from capszoo import protocols
    from capszoo.progress.terminal import TerminalProgress
    from capszoo.protocols.tables import free_inference_table, show
    from capszoo.visualize import draw_free_form

    command = (
        f"capszoo infer-freely {name} --images {images} --max-angle {max_angle:g} --steps {steps} --out {out}"
    )
    with TerminalProgress() as progress:
        report, answers = protocols.measure_free_inference(
            trained(name), images, max_angle=max_angle, steps=steps, command=command, progress=progress
        )
    show(free_inference_table(report))
    drawings = {}
    for condition, (shown, *answer) in answers.items():
        rows = (shown, *(outputs["reconstruction"] for outputs in answer))
        drawings[condition] = draw_free_form(*(pictures[:COLUMNS] for pictures in rows))
    _write(report, out, "infer_freely", drawings)


@app.command("compare-routing")
def compare_routing(names: Several, out: Out):
    """Compare networks with and without routing, with and without decoder (Kiefer et al. 2022, appendix A)."""
    from capszoo import protocols
    from capszoo.progress.terminal import TerminalProgress

    with TerminalProgress() as progress:
        report = protocols.compare_routing(
            [trained(name) for name in names],
            command=f"capszoo compare-routing {' '.join(names)} --out {out}",
            progress=progress,
        )
    for condition, measurement in report.errors.items():
        typer.echo(f"{condition} ({report.names[condition]}): {measurement.sentence()}")
    _write(report, out, "compare_routing", {})


def _write(report, out, name, drawings):
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.json", *(out / f"{drawing}.png" for drawing in drawings)]
    paths[0].write_text(report.to_json(), encoding="utf-8")
    for path, figure in zip(paths[1:], drawings.values(), strict=True):
        figure.savefig(path, dpi=150)
    typer.echo(f"written: {', '.join(map(str, paths))}")
