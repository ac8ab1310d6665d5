// Reads server-sent events of OpenAI endpoints: "data: JSON" lines, ending with "data: [DONE]".
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::load {

// Accepts a stream in pieces of any size. Errors: kUnsupported for a line of more than 4 MiB.
class EventReader {
  public:
    // on_data: called with the text after "data:" of each line, trimmed.
    explicit EventReader(std::function<Status(std::string_view data)> on_data)
        : on_data_(std::move(on_data)) {}
    Status Take(std::string_view bytes);

  private:
    Status Line(std::string_view line);
    std::function<Status(std::string_view)> on_data_;
    std::string rest_;  // the current line, still incomplete
};

// One parsed event. Errors: kCorrupt if `json` is not an object of this kind, or reports an error.
struct Chunk {
    bool is_piece = false;  // it has at least one token
    bool has_usage = false;
    int64_t input_tokens = 0, output_tokens = 0;  // set if has_usage
};
Result<Chunk> ParseChunk(std::string_view json, bool chat);

}  // namespace weft::load
