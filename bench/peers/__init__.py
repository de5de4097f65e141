"""Other queue libraries, each in a separate module and environment.

A module names the version of a library, the settings, and the advice in the documentation. The
library is imported inside methods, so that the driver can read the module without the library.
"""
