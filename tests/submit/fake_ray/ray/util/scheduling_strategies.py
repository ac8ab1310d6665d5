class PlacementGroupSchedulingStrategy:
    def __init__(self, **_):
        pass
