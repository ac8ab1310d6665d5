// gpt-oss and Muse Glimmer: messages with heads. In gpt-oss the head names a channel and calls
// contain JSON; in Muse Glimmer the head names the recipient and calls contain tags.
#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/answer_grammar.h"
#include "chat/json_repair.h"
#include "chat/template/value_scan.h"

namespace weft::chat {
namespace {

constexpr std::string_view kStart = "<|start|>";

class HarmonyGrammar : public AnswerParser::Grammar {
  public:
    HarmonyGrammar(bool tags, GrammarOptions options)
        : tags_(tags),
          parts_(options.parts && options.wants_calls() && !tags),
          options_(std::move(options)),
          ends_(tags ? std::vector<std::string_view>{"<|eom|>", "<|eot|>", kStart}
                     : std::vector<std::string_view>{"<|end|>", "<|call|>", "<|return|>", kStart}) {
        for (const std::string_view end : ends_) control_.push_back(options_.IsControl(end));
    }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (held_.size() > AnswerParser::kMostHeldBytes) {
            delta.content += std::exchange(held_, {});
            kind_ = Kind::kFinal;
            in_head_ = false;
        }
    }

    bool Takes(std::string_view token) const override {
        return in_head_ || kind_ == Kind::kCall || Touches(token, ends_);
    }

    void Finish(bool ended, AnswerDelta& delta) override {
        over_ = true;
        while (Step(delta)) {
        }
        if (in_head_) {
            // Text without any head is content; a head without a body is dropped.
            constexpr std::string_view kHeads[] = {kStart, "<|channel|>", "<|constrain|>", "to="};
            const std::string_view text = TrimBlanks(held_);
            const bool head = std::ranges::any_of(kHeads, [&](std::string_view begin) {
                return text.starts_with(begin) || begin.starts_with(text);
            });
            if (!head || text.empty()) delta.content += held_;
        } else {
            Out(held_, delta);
            EndMessage(ended, delta);
        }
        held_.clear();
    }

    bool in_reasoning() const override { return !in_head_ && kind_ == Kind::kAnalysis; }

  private:
    enum class Kind { kAnalysis, kFinal, kCall };

    bool Step(AnswerDelta& delta) {
        if (in_head_) {
            constexpr std::string_view kMessage = "<|message|>";
            const size_t at = held_.find(kMessage);
            if (at == std::string::npos) return false;
            ReadHead(std::string_view(held_).substr(0, at));
            held_.erase(0, at + kMessage.size());
            in_head_ = false;
            return true;
        }
        const FoundMarker found = FindEnd();
        const bool none = found.at == std::string::npos;
        if (!none && Ends(found) == Likely::kUnknown) {
            Out(std::string_view(held_).substr(0, found.at), delta);
            held_.erase(0, found.at);
            return false;
        }
        const size_t known = none ? held_.size() - BegunAtEnd(held_, ends_) : found.at;
        Out(std::string_view(held_).substr(0, known), delta);
        held_.erase(0, none ? known : known + ends_[found.marker].size());
        if (none) return false;
        EndMessage(true, delta);
        in_head_ = true;
        return true;
    }

    // Whether the marker ends the message. Spelled as text, it does so before the next message, and
    // at the end of the answer.
    Likely Ends(const FoundMarker& found) const {
        const std::string_view marker = ends_[found.marker];
        if (control_[found.marker]) return Likely::kYes;
        if (options_.verbatim && kind_ == Kind::kFinal) return Likely::kNo;
        if (marker != kStart) {
            return OnlyMarkers(held_, found.at + marker.size(), ends_, {kStart, "<|channel|>"},
                               over_);
        }
        constexpr std::string_view kHeads[] = {"assistant<|channel|>", "assistant<|message|>",
                                               "assistant to="};
        const std::string_view rest = std::string_view(held_).substr(found.at + marker.size());
        Likely begins = Likely::kNo;
        for (const std::string_view head : kHeads) {
            if (rest.starts_with(head)) return Likely::kYes;
            if (head.starts_with(rest) && !over_) begins = Likely::kUnknown;
        }
        return begins;
    }

    // The first marker that ends the message or may do so, outside a call's string argument.
    FoundMarker FindEnd() const {
        const bool strings = kind_ == Kind::kCall && !tags_;
        ValueScan scan = scan_;
        size_t fed = 0;
        FoundMarker found = FindMarker(held_, ends_);
        for (; found.at != std::string::npos; found = FindMarker(held_, ends_, found.at + 1)) {
            if (strings) scan.Feed(std::string_view(held_).substr(fed, found.at - fed));
            fed = found.at;
            const bool inside = strings && scan.inside() && !control_[found.marker];
            if (!inside && Ends(found) != Likely::kNo) break;
        }
        return found;
    }

    // "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json"
    void ReadHead(std::string_view head) {
        const auto word_after = [&](std::string_view mark) {
            const size_t at = head.find(mark);
            if (at == head.npos) return std::string_view();
            const std::string_view rest = head.substr(at + mark.size());
            return rest.substr(0, rest.find_first_of(" \t\r\n<"));
        };
        const std::string_view to = word_after("to=");
        const std::string_view channel = word_after("<|channel|>");
        constexpr std::string_view kFunctions = "functions.";
        if (tags_ && (to == "self" || to == "user")) {
            kind_ = to == "self" ? Kind::kAnalysis : Kind::kFinal;
        } else if (!to.empty() && options_.wants_calls()) {
            scan_ = ValueScan();
            scanned_ = 0;
            repair_ = JsonRepair();
            kind_ = Kind::kCall;
            name_ = to.starts_with(kFunctions) ? to.substr(kFunctions.size()) : to;
            head_ = head;
            begins_ = true;
            streams_ = false;
        } else {
            kind_ = channel == "analysis" ? Kind::kAnalysis : Kind::kFinal;
        }
    }

    void Out(std::string_view text, AnswerDelta& delta) {
        switch (kind_) {
            case Kind::kAnalysis: delta.reasoning += text; return;
            case Kind::kFinal: delta.content += text; return;
            case Kind::kCall: break;
        }
        size_t before = std::exchange(scanned_, scanned_ + text.size());
        scan_.Feed(text);
        std::string begun;
        if (!streams_) {
            if (body_.size() + text.size() > AnswerParser::kMostHeldBytes) {
                delta.content += head_ + "<|message|>" + std::exchange(body_, {});
                delta.content += text;
                kind_ = Kind::kFinal;
                return;
            }
            body_ += text;
            streams_ = parts_ && BeginsObject(body_);
            if (!streams_) return;
            text = begun = std::exchange(body_, {});
            before = 0;
        }
        // Wrong text behind the arguments is dropped.
        if (!tags_ && scan_.done()) text = text.substr(0, std::max(scan_.end(), before) - before);
        std::string repaired;
        for (const char c : text) repair_.Take(c, repaired);
        Part(repaired, delta);
    }

    static bool BeginsObject(std::string_view body) {
        const size_t at = body.find_first_not_of(" \t\r\n");
        return at != body.npos && body[at] == '{';
    }

    void Part(std::string_view text, AnswerDelta& delta) {
        if (text.empty() && !begins_) return;
        if (body_.size() + text.size() <= AnswerParser::kMostHeldBytes) body_ += text;
        delta.call_parts.push_back({begins_ ? name_ : "", std::string(text), begins_, false});
        begins_ = false;
    }

    // A call without its end marker is valid if its tags are complete.
    void EndTags(AnswerDelta& delta) {
        const std::string body = std::exchange(body_, {});
        const auto calls = ReadAtemCalls(body, options_.types());
        if (!calls) delta.content += head_ + "<|message|>" + body;
        if (calls) delta.tool_calls.insert(delta.tool_calls.end(), calls->begin(), calls->end());
        kind_ = Kind::kFinal;
    }

    void EndMessage(bool ended, AnswerDelta& delta) {
        if (kind_ != Kind::kCall) return;
        if (tags_) return EndTags(delta);
        std::string rest;
        repair_.End(rest);
        if (streams_) Part(rest, delta);
        std::string body = std::exchange(body_, {});
        if (ended && TrimBlanks(body).empty()) body = "{}";
        const bool closed = BeginsObject(body) && scan_.done();
        const bool cut = closed && !streams_;  // (the parts of a stream were cut as they arrived)
        ToolCall call = CallAsWritten(name_, cut ? body.substr(0, scan_.end()) : body);
        const bool whole = !call.as_written || closed;
        if (whole && streams_) {
            delta.call_parts.push_back({"", "", false, true});
        } else if (whole) {
            delta.tool_calls.push_back(std::move(call));
        } else if (!streams_) {
            delta.content += head_ + "<|message|>" + body;
        }
        kind_ = Kind::kFinal;
    }

    const bool tags_, parts_;
    const GrammarOptions options_;
    const std::vector<std::string_view> ends_;
    std::vector<bool> control_;  // by marker of ends_: it is a control token
    bool over_ = false;          // the answer has ended
    bool begins_ = false;        // the next part of the call is its first
    bool streams_ = false;       // the call is sent in parts
    std::string held_, head_, name_, body_;
    ValueScan scan_;      // scans the arguments of a call
    size_t scanned_ = 0;  // their bytes
    JsonRepair repair_;   // of the streamed arguments
    bool in_head_ = true;
    Kind kind_ = Kind::kFinal;
};

}  // namespace

MessageHeads HeadsOf(ToolCallFormat family) {
    if (family == ToolCallFormat::kHarmony) {
        return {"<|channel|>analysis<|message|>", "<|channel|>final", "<|message|>", "<|end|>",
                "<|start|>assistant"};
    }
    if (family == ToolCallFormat::kAtem) {
        return {"to=self<|message|>", "to=user", "<|message|>", "<|eom|>", "<|start|>assistant "};
    }
    return {};
}

std::unique_ptr<AnswerParser::Grammar> MakeHarmonyGrammar(GrammarOptions options) {
    return std::make_unique<HarmonyGrammar>(false, std::move(options));
}

std::unique_ptr<AnswerParser::Grammar> MakeAtemGrammar(GrammarOptions options) {
    return std::make_unique<HarmonyGrammar>(true, std::move(options));
}

}  // namespace weft::chat
