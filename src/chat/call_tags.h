// Arguments of a call between tags, such as Qwen-Coder's <parameter=KEY>VALUE</parameter>: their
// values, and their JSON while a long value arrives.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "chat/answer.h"
#include "chat/tool_types.h"

namespace weft::chat {

// KEY is between key_begin and key_end, VALUE between value_begin (may be empty) and value_end.
struct ArgumentTags {
    std::string_view key_begin, key_end, value_begin, value_end;
    bool lines = false;  // a line end on each side of VALUE belongs to the format
    bool cdata = false;  // VALUE may be a CDATA section
};

// The text of a value in these tags.
std::string_view ValueText(std::string_view value, const ArgumentTags& tags);

// A key, KEY or "KEY", optionally followed by DeepSeek V3.2's type of the value.
struct WrittenKey {
    WrittenKey() = default;
    explicit WrittenKey(std::string_view written);
    OrderedJson ValueOf(std::string_view function, std::string_view value,
                        const ToolTypes& types) const;
    // Whether the value is a string, whatever its text is.
    bool IsText(std::string_view function, const ToolTypes& types) const {
        return is_text || (!is_json && types.IsText(function, name));
    }

    std::string name;
    bool is_text = false, is_json = false;
};

// Calls whose text begins with `open` and the function's name; empty: with the name.
struct TaggedCall {
    std::string_view open;
    ArgumentTags tags;
};

// Writes the arguments of a call as JSON while its text arrives, from the first long string on: a
// call with short arguments is parsed when it is complete (answer_calls.h). What is written does
// not depend on the pieces in which the text arrives.
class TagStream {
  public:
    static constexpr size_t kLeastBytes = 128;  // of a string that is streamed

    // body: the text of the call so far, longer each time. Appends the JSON that is known.
    void Take(std::string_view body, std::span<const TaggedCall> forms, const ToolTypes& types,
              std::string& arguments);
    // Appends the rest of a complete call. call: the parsed text; null: it cannot be parsed, and
    // the arguments are what was understood of it.
    void End(std::string_view body, const ToolCall* call, std::string& arguments);
    bool begun() const { return begun_; }
    const std::string& name() const { return name_; }

  private:
    enum class State { kName, kKey, kValue, kStopped };
    bool ReadName(std::string_view body, std::span<const TaggedCall> forms);
    bool ReadKey(std::string_view body);
    bool ReadValue(std::string_view body, const ToolTypes& types);
    void Show(std::string_view body, const ToolTypes& types);
    void EndValue(std::string_view body, size_t end, const ToolTypes& types);
    void AddKey(std::string_view key);
    void Give(std::string& arguments);

    State state_ = State::kName;
    std::string name_;
    ArgumentTags tags_{};
    size_t at_ = 0;  // bytes of the body that were read, up to the current value
    WrittenKey key_;
    size_t searched_ = 0;                       // no end of the value begins before this offset
    size_t doubtful_ = std::string_view::npos;  // the value may end here
    size_t shown_ = 0;                          // offset in the body of the next byte to write
    bool open_ = false;                         // the JSON ends within a string
    bool begun_ = false;
    std::string json_ = "{";
    size_t given_ = 0;  // bytes of json_ that Take returned
    bool has_keys_ = false;
};

}  // namespace weft::chat
