"""Other queue libraries, each in a module of its own and an environment of its own.

A module names its library's version, its settings and where their documentation advises them. It
imports the library inside its methods, so that the driver can read it without the library.
"""
