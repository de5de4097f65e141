"""Figures as pictures: ``python -m bench.pictures`` draws what ``bench/results`` holds."""
