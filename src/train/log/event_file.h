// Writes TensorBoard's event files without TensorFlow.
//
// A file is a list of TFRecords (https://www.tensorflow.org/tutorials/load_data/tfrecord): length
// u64, masked CRC-32C of the length, data, masked CRC-32C of the data, little-endian. Each record
// holds a protocol buffer `tensorflow.Event` (tensorflow/core/util/event.proto) with the fields
// wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5. A Summary has
// values = 1 with the fields tag = 1, simple_value = 2 (float), tensor = 8, metadata = 9
// (summary.proto). The first event is the version "brain.Event:2". Texts are tensors of one string
// with the plugin "text".
//
// The name is events.out.tfevents.SECONDS.HOST.PID.N, the pattern that TensorBoard searches for.
//
// Errors: kIo with the path. Thread: one caller at a time. A record is one write(2), so a killed
// process leaves whole records, or a truncated last one that TensorBoard skips. If the disk has no
// space for a whole record, no part of the record is written, and later records can still be
// written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace weft::train {

class EventFile {
  public:
    static Result<EventFile> Create(const std::string& folder);

    Status AddScalar(std::string_view tag, int64_t step, double value);
    // text: Markdown; TensorBoard's Text page shows it.
    Status AddText(std::string_view tag, int64_t step, std::string_view text);

    const std::string& path() const { return path_; }
    // Whether the file was deleted, so that added records are lost.
    bool removed() const;

  private:
    EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
    Status Write(std::string_view event);

    std::string path_;
    Fd fd_;
};

// A TFRecord with `data`; for tests and readers.
std::string TfRecord(std::string_view data);

}  // namespace weft::train
