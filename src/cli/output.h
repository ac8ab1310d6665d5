// What commands print, and when: JSON, tables, a progress line, Ctrl-C.
#pragma once

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::cli {

// Fields in the order in which they are added.
using Json = nlohmann::ordered_json;

// As one line on standard output. Bytes that are not UTF-8 come out as U+FFFD.
void PrintJson(const Json& json);

// "96.6 MiB", "1.24 GiB".
std::string BytesText(uint64_t bytes);

// A line on standard error that is written over and over, on a terminal only, and gone with the
// object.
class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void Show(std::string_view text);
    void Clear();

  private:
    bool terminal_;
    bool shown_ = false;
};

// From here on Ctrl-C (SIGINT) and SIGTERM set the flag that is returned, once; a second one ends
// the process. It goes into ClusterOptions::stop. grace_ms: a SIGTERM sets it so much later.
const std::atomic<bool>* CatchInterrupts(int grace_ms = 0);

// From here on SIGHUP sets the flag that is returned, each time; who looks clears it.
std::atomic<bool>* CatchHangups();

// Writes to standard output at once. Where nobody reads it any more, asks to stop like Ctrl-C.
void Stream(std::string_view text);

}  // namespace weft::cli
