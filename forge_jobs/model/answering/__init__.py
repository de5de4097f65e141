"""From queries of the filter language to the filters that stores answer."""
