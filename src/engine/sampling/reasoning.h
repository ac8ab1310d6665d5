// Follows the reasoning at the beginning of an answer: a constraint waits for its end, and a budget
// ends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::engine {

// How a request's answer may begin with reasoning. `end` empty: the answer has no reasoning.
struct Reasoning {
    // Texts around the reasoning. `end_rest`: the reasoning ends at the first `end_rest` after
    // `end`; empty: with `end`.
    std::string begin{}, end{}, end_rest{};
    // The token that is `end`, which other tokens then only spell; -1: any tokens write `end`.
    int32_t end_token = -1;
    // Not empty: the answer is a list of messages, whose heads begin with one of these tokens. The
    // reasoning ends at the first `end_token` (here the token that is `end_rest`) after a head with
    // `end`.
    std::vector<int32_t> head_tokens{};
    bool begun = false;   // the prompt ends inside the reasoning
    int64_t budget = -1;  // most tokens of reasoning; -1: no limit
    int32_t opening =
        -1;  // token with which a constrained answer may begin its reasoning; -1: none
    // Tokens that end the reasoning, when the budget is spent or a constrained answer would end
    // inside it.
    std::vector<int32_t> closing{};
};

class ReasoningTrack {
  public:
    explicit ReasoningTrack(const Reasoning& asked);

    // Whether the next token is part of the reasoning, or of the tokens that end it.
    bool inside() const { return place_ == Place::kInside || closing(); }
    // The next token, if the track decides it; else -1.
    int32_t Forced() const;
    // Whether Forced may decide one of the next `tokens` tokens.
    bool MayForce(int64_t tokens) const;
    // A token that may come next although the constraint does not allow it; -1: none.
    int32_t opening() const {
        return place_ == Place::kBefore && tokens_ == 0 ? asked_.opening : -1;
    }
    // Ends the reasoning with the next tokens. Returns false if there are no tokens that end it.
    bool Close();
    // Advances by a token with its text; constrained: the constraint accepted the token.
    void Take(int32_t token, std::string_view text, bool constrained);

  private:
    enum class Place { kBefore, kInside, kAfter };

    bool closing() const { return closed_ > 0 && closed_ <= asked_.closing.size(); }
    void Search(std::string_view text, bool ends);
    void SearchHeads(int32_t token, std::string_view text);

    Reasoning asked_;
    Place place_;
    int64_t tokens_ = 0;     // in the current place
    size_t closed_ = 0;      // 1 + number of closing tokens taken; 0: not closing
    bool end_seen_ = false;  // the text has `end`, and the search is for `end_rest`
    bool in_head_ = true;    // of a message
    bool whole_ = true;      // the last token ended a code point
    std::string tail_;       // end of the text that may hold the beginning of a marker; the head
};

}  // namespace weft::engine
