// Server-sent events as OpenAI endpoints send them: "data: JSON" lines, the last "data: [DONE]".
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::load {

// Takes a stream in any pieces. Lines are bounded: kUnsupported for one of more than 4 MiB.
class EventReader {
  public:
    // on_data: what follows "data:" in each line, without blanks around it.
    explicit EventReader(std::function<Status(std::string_view data)> on_data)
        : on_data_(std::move(on_data)) {}
    Status Take(std::string_view bytes);

  private:
    Status Line(std::string_view line);
    std::function<Status(std::string_view)> on_data_;
    std::string rest_;  // of a line whose end has not come
};

// What one event says. kCorrupt where it is no JSON object of that kind, or holds an error.
struct Chunk {
    bool is_piece = false;  // it brings a token, or some
    bool has_usage = false;
    int64_t input_tokens = 0, output_tokens = 0;  // with has_usage
};
Result<Chunk> ParseChunk(std::string_view json, bool chat);

}  // namespace weft::load
