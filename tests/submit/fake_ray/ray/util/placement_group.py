_held = []  # a driver that leaves a group behind would wait for its places for ever


class _Group:
    def wait(self, _seconds):
        return _held[0] is self


def placement_group(_bundles, **_):
    _held.append(_Group())
    return _held[-1]


def remove_placement_group(group):
    _held.remove(group)
