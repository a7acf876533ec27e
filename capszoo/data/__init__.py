"""Data sets, their splits, and the order in which training sees them; importing this registers them all."""

from capszoo.data.affnist import Affnist
from capszoo.data.affnist_synth import AffnistSynth
from capszoo.data.coil20 import Coil20
from capszoo.data.dataset import DataSet
from capszoo.data.eth80 import Eth80
from capszoo.data.fashion_mnist import FashionMnist
from capszoo.data.folder import Folder
from capszoo.data.mnist import Mnist
from capszoo.data.multimnist import MultiMnist
from capszoo.data.pipeline import Batches, evaluation_batches
from capszoo.data.rotated_mnist import RotatedMnist
from capszoo.data.smallnorb import Smallnorb, Synthnorb
from capszoo.data.sources import DataNotFound
from capszoo.data.split import ArraySplit, Split
from capszoo.data.tfds import Tfds

__all__ = [
    "Affnist",
    "AffnistSynth",
    "ArraySplit",
    "Batches",
    "Coil20",
    "DataNotFound",
    "DataSet",
    "Eth80",
    "FashionMnist",
    "Folder",
    "Mnist",
    "MultiMnist",
    "RotatedMnist",
    "Smallnorb",
    "Split",
    "Synthnorb",
    "Tfds",
    "evaluation_batches",
]
