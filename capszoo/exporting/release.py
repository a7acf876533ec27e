"""What a release has beside the wheels: the bundle of every preset with weights, and what its card says of it."""

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

from capszoo.config import ConfigError
from capszoo.exporting import identity
from capszoo.exporting.artefacts import artefact_files, checksum
from capszoo.exporting.bundle import export
from capszoo.exporting.recording import INT8
from capszoo.exporting.servers import PUBLISHED, newest
from capszoo.exporting.verification import REPORT, require_whole
from capszoo.progress import QUIET
from capszoo.training.files import write_text
from capszoo.zoo import locating
from capszoo.zoo.card import ExportedFormat, read_card
from capszoo.zoo.listing import list_models
from capszoo.zoo.loading import load
from capszoo.zoo.locating import CARD
from capszoo.zoo.presets import get_preset
from capszoo.zoo.recipes import current_name
from capszoo.zoo.replacing import update_card

MODELS_CONFIG = "models.config"


def release(directory, names=None, progress=QUIET) -> list[Path]:
    """Gathers the bundles of presets in `directory`, and writes their checksums into the cards.

        directory/<name>/<version>/     the bundle in export/models; of a preset whose weights have none there, a new
                                        export
        directory/models.config         all of them, for TensorFlow Serving

    where:
      names: presets; all with weights if None.
      progress: says a line for each bundle.

    Of a bundle of these weights that is already in `directory` only the card is written.
    Returns the folders of the bundles.
    Errors: those of `export`; `ConfigError` for a preset without weights, before anything is written; `IntegrityError`
    for a bundle of which a file was altered.
    """
    directory, names = Path(directory), [current_name(name) for name in names or list_models(pretrained=True)]
    for name in names:
        if get_preset(name).card is None:
            raise ConfigError(f"{name} has no published weights.")
    directory.mkdir(parents=True, exist_ok=True)
    bundles = []
    for name in names:
        bundle = _gathered(name, directory)
        record_checksums(name, bundle)
        progress.say(f"{bundle}: {sum(path.stat().st_size for path in bundle.rglob('*')):,} bytes")
        bundles.append(bundle)
    present = sorted(folder.name for folder in directory.iterdir() if newest(folder))
    write_text(directory / MODELS_CONFIG, models_config(present))
    return bundles


def _gathered(name, directory):
    model, present, published = load(name), newest(directory / name), newest(PUBLISHED / name)
    weights = identity.of_model(model)
    if present and identity.of_bundle(present) == weights:
        return present
    version = int(present.name) + 1 if present else 1
    target = directory / name / str(version)
    if published and identity.of_bundle(published) == weights:
        return _copied(published, target)
    export(model, directory, name=name, version=version, int8=INT8 in model.preset.card.exports)
    return target


def _copied(bundle, target):
    """A copy of a bundle, which appears under its name only when it is complete, as exports do."""
    models = target.parents[1]
    with tempfile.TemporaryDirectory(dir=models, prefix=f".{target.parent.name}.{target.name}.") as folder:
        copy = shutil.copytree(bundle, Path(folder) / "bundle")
        target.parent.mkdir(exist_ok=True)
        copy.rename(target)
    return target


def record_checksums(name, bundle):
    """Writes into the card of the preset `name` what is known of each artefact of `bundle` without running it.

    Errors and speeds that the card has stay: they are of the same weights.
    Errors: `IntegrityError` for a bundle of which a file was altered.
    """
    require_whole(bundle)
    folder = locating.weights_folder() / name
    card = read_card(folder / CARD)
    deviations = json.loads((bundle / REPORT).read_text(encoding="utf-8"))["deviations"]
    exports = {}
    for artefact, files in artefact_files(bundle).items():
        known = card.exports.get(artefact, ExportedFormat(0, {}, None, None))
        exports[artefact] = dataclasses.replace(
            known,
            bytes=sum(path.stat().st_size for path in files),
            deviations=deviations["serving_default" if artefact == "saved-model" else artefact],
            sha256=checksum(files),
        )
    update_card(folder, card.files, exports=exports)


def models_config(names) -> str:
    """What TensorFlow Serving reads to serve all these models from /models."""
    entries = [
        f'  config {{ name: "{name}" base_path: "/models/{name}" model_platform: "tensorflow" }}\n'
        for name in names
    ]
    return f"model_config_list {{\n{''.join(entries)}}}\n"


def main():
    """Gathers the bundles of a release."""
    from capszoo.progress.terminal import TerminalProgress

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", help="presets; all with weights if none is named")
    arguments = parser.parse_args()
    with TerminalProgress() as progress:
        release(arguments.directory, arguments.names, progress)


if __name__ == "__main__":
    main()
