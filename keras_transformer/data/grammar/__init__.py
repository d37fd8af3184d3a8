"""The small Portuguese-English grammar that the built-in phrasebook is made from."""
