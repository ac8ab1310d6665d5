#!/usr/bin/env python3
"""Event files of src/train/log, read by the package `tensorboard`.

    tests/train/tensorboard_test.py build/tests/train_tests build/python-packages

The test EventFile.ForTensorBoard of train_tests writes one run; its numbers are compared here.
Exit status 77: the package is missing.
"""
import os
import subprocess
import sys
import tempfile

STEPS = 300


def main():
    program, packages = sys.argv[1:]
    sys.path.insert(0, packages)
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError as error:
        print(f"SKIPPED: no package tensorboard in {packages} ({error}); ./test installs it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "--gtest_filter=EventFile.ForTensorBoard"], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"WEFT_EVENT_FOLDER": folder})
        events = event_accumulator.EventAccumulator(
            folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
        events.Reload()
        tags = events.Tags()
        assert sorted(tags["scalars"]) == ["train/loss", "train/lr"], tags
        loss = events.Scalars("train/loss")
        assert [each.step for each in loss] == list(range(STEPS)), loss
        for each in loss:
            assert abs(each.value - 4 / (1 + each.step)) <= 1e-6, each  # float32
        assert [each.step for each in events.Scalars("train/lr")] == list(range(STEPS))
        text = events.Tensors("sample/1")
        assert len(text) == 1 and text[0].step == 0, text
        assert text[0].tensor_proto.string_val == ["a *text* of \u00e9".encode()], text
        plugin = events.SummaryMetadata("sample/1").plugin_data.plugin_name
        assert plugin == "text", plugin
    print(f"tensorboard reads {len(loss)} steps of {len(tags['scalars'])} scalars, and the text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
