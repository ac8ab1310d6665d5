// Answers with markers around reasoning and calls.
#include <algorithm>
#include <utility>

#include "chat/answer_grammar.h"
#include "chat/answer_rules.h"
#include "chat/call_stream.h"
#include "chat/call_tags.h"
#include "chat/stretch.h"

namespace weft::chat {
namespace {

constexpr std::string_view kTagBlanks = " \t\r\n";

// Tracks tags in a call: a value is open until its closing tag arrives.
class OpenTags {
  public:
    // body: text up to the end marker `end`; it grows during a call.
    bool Inside(std::string_view body, std::string_view end) {
        if (close_.empty()) Find(body, end);
        if (close_.empty()) return false;
        return !TrimBlanks(body).ends_with(close_);
    }
    // Whether the call is complete although its end marker is missing.
    bool Whole(std::string_view body, std::string_view end) {
        return !Inside(body, end) && (close_ == "</function>" || close_.ends_with("invoke>"));
    }

  private:
    void Find(std::string_view body, std::string_view end) {
        constexpr std::pair<std::string_view, std::string_view> kTags[] = {
            {"<arg_key>", "</arg_value>"},
            {"<arg_key:opensource>", "</arg_value:opensource>"},
            {"<longcat_arg_key>", "</longcat_arg_value>"},
            {"<function=", "</function>"},
            {"<parameter=", "</parameter>"},
            {"<param name=", "</param>"},
            {"]<]minimax[>[<invoke", "]<]minimax[>[</invoke>"},
            {"<invoke", "</invoke>"},
            {"<\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9Cinvoke",
             "</\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9Cinvoke>"},
            {"<\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9Cinvoke",
             "</\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9Cinvoke>"}};
        for (const auto& [open, close] : kTags) {
            if (close == end || body.find(open) == body.npos) continue;
            close_ = close;
            return;
        }
    }
    std::string_view close_;
};

// Judges by the beginning of a text whether it may be calls: a bracket, or a name before a bracket.
// kept: bytes of the marker at its beginning; if they are more than a bracket, a name follows.
Likely MayBeCalls(std::string_view text, size_t kept) {
    constexpr size_t kMostNameBytes = 256;
    if (kept > 1) {
        if (text.size() <= kept) return Likely::kUnknown;
        const bool quoted = text.substr(0, kept).ends_with("name=");
        const bool begins = quoted ? text[kept] == '"' : BeginsName(text[kept]);
        return begins ? Likely::kYes : Likely::kNo;
    }
    const size_t at = text.find_first_not_of(kTagBlanks);
    if (at == text.npos) return Likely::kUnknown;
    const size_t end = text.find_first_of("<{[](` \t\r\n", at);
    if (end == text.npos) {
        return text.size() - at > kMostNameBytes ? Likely::kNo : Likely::kUnknown;
    }
    if (end == at) return text[at] == '(' || text[at] == '`' ? Likely::kNo : Likely::kYes;
    const size_t next = text.find_first_not_of(kTagBlanks, end);
    if (!IsCallName(text.substr(at, end - at))) return Likely::kNo;
    if (next == text.npos) return Likely::kUnknown;
    return std::string_view("<{[](`").find(text[next]) != text.npos ? Likely::kYes : Likely::kNo;
}

// State of the current call: its end and the parts already emitted.
struct OpenCall {
    const CallForm* form = nullptr;  // null: not in a call
    std::string shown{};             // text before the call, to restore if it is not a call
    ValueScan scan{};
    std::vector<std::string_view> ends{};
    OpenTags tags{};
    CallStream stream{};
    TagStream tag_stream{};
    size_t scanned = 0;    // bytes scanned
    size_t searched = 0;   // no end marker begins before this offset
    bool tagged = false;   // tags and names instead of JSON
    bool skipped = false;  // an end marker was skipped as part of a string
    bool likely = false;   // its text begins like calls
    bool thought = false;  // it is in the reasoning

    bool begun() const { return stream.begun() || tag_stream.begun(); }
    // Whether parts of the call can be streamed.
    bool streams() const { return !thought && (tagged ? form->tagged != nullptr : form->streams); }
};

// Calls in the reasoning: whether they are calls or a thought depends on what follows.
struct ThoughtCalls {
    std::string text{};  // as written
    std::vector<ToolCall> calls{};
};

class TagGrammar : public AnswerParser::Grammar {
  public:
    TagGrammar(AnswerRules rules, GrammarOptions options)
        : rules_(std::move(rules)), options_(std::move(options)) {
        if (!options_.wants_calls()) rules_.calls.clear();
        outside_ = {rules_.think_begin, rules_.think_end};
        for (const CallForm& form : rules_.calls) begins_call_.push_back(form.begin);
        std::vector<std::string_view> frame = {rules_.frame_begin, rules_.frame_end};
        for (const auto* more : {&begins_call_, &rules_.dropped, &rules_.begins, &frame}) {
            outside_.insert(outside_.end(), more->begin(), more->end());
        }
        std::erase(outside_, "");
        for (const std::string_view marker : outside_) {
            control_.push_back(options_.IsControl(marker));
            if (control_.back() && IsIn(rules_.dropped, marker)) turn_ends_.push_back(marker);
        }
        if (options_.in_reasoning) Think();
    }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (thought_calls_.text.size() + held_.size() <= AnswerParser::kMostHeldBytes) return;
        TakeAsThought(delta);
        if (call_.form != nullptr) NoCall(delta);
    }

    bool Takes(std::string_view token) const override {
        return call_.form != nullptr || Touches(token, outside_);
    }

    // An end of the turn within a call cuts it off, because its end marker is no end of a turn.
    void Finish(bool ended, AnswerDelta& delta) override {
        over_ = true;
        for (;;) {
            while (Step(delta)) {
            }
            if (call_.form == nullptr) break;
            // What a stream has begun to send ends with the answer.
            const bool begun = call_.tagged && ReadBegunTags(held_).has_value();
            // An unbalanced quote hid the end marker: treat markers literally.
            if (call_.skipped && !begun && !call_.begun() && !ReadCalls(WithoutBegunEnd(), false)) {
                literal_ = true;
                call_.searched = call_.form->kept;
                call_.scanned = 0;
                call_.scan = ValueScan(call_.form->style);
                call_.skipped = false;
                continue;
            }
            const std::string body(WithoutBegunEnd());
            const std::string end = std::exchange(held_, {}).substr(body.size());
            EndCall(body, end, begun && ended, delta);
        }
        Out(held_, delta);
        held_.clear();
        content_.End(delta.content);
    }

    bool in_reasoning() const override { return in_reasoning_; }

  private:
    // The current call, without a partial end marker.
    std::string_view WithoutBegunEnd() const {
        const std::vector<std::string_view> ends(!call_.form->end.empty(), call_.form->end);
        return std::string_view(held_).substr(0, held_.size() - BegunAtEnd(held_, ends));
    }

    void Think() {
        in_reasoning_ = thought_ = true;
        content_.Cut();
        reasoning_.Cut();
    }

    void Out(std::string_view text, AnswerDelta& delta) {
        if (text.empty()) return;
        TakeAsThought(delta);
        const bool blank = TrimBlanks(text).empty();
        if (in_reasoning_) {
            reasoned_ = reasoned_ || !blank;
            return reasoning_.Add(text, delta.reasoning);
        }
        shown_ = shown_ || !blank;
        content_.Add(text, delta.content);
    }

    // Consumes one marker and the text before it, or one call. Returns false if it needs more text.
    bool Step(AnswerDelta& delta) {
        if (call_.form != nullptr) return StepInCall(delta);
        if (!thought_calls_.calls.empty()) return StepBehindThoughtCalls(delta);
        if (again_ != nullptr && !StepBehindCall()) return false;
        if (call_.form != nullptr) return true;
        if (options_.verbatim && shown_ && !in_reasoning_) {
            Out(std::exchange(held_, {}), delta);
            return false;
        }
        const FoundMarker found = FindMarker(held_, outside_);
        if (found.at == std::string::npos) {
            const size_t known = held_.size() - BegunAtEnd(held_, outside_);
            Out(std::string_view(held_).substr(0, known), delta);
            held_.erase(0, known);
            return false;
        }
        Out(std::string_view(held_).substr(0, found.at), delta);
        held_.erase(0, found.at);
        if (options_.verbatim && shown_ && !in_reasoning_) return true;
        const std::string_view marker = outside_[found.marker];
        const Likely counts = Counts(marker, control_[found.marker]);
        if (counts == Likely::kUnknown) return false;
        held_.erase(0, marker.size());
        if (counts == Likely::kYes) {
            Marker(marker);
        } else {
            unclosed_ += !in_reasoning_ && marker == rules_.frame_begin ? 1 : 0;
            unclosed_ -= !in_reasoning_ && marker == rules_.frame_end && unclosed_ > 0 ? 1 : 0;
            Out(marker, delta);
        }
        return true;
    }

    static bool IsIn(const std::vector<std::string_view>& markers, std::string_view marker) {
        return std::ranges::find(markers, marker) != markers.end();
    }

    // Whether the marker at the beginning of held_ is one. control: it is a control token.
    Likely Counts(std::string_view marker, bool control) const {
        const auto likely = [](bool yes) { return yes ? Likely::kYes : Likely::kNo; };
        if (control || IsIn(begins_call_, marker)) return Likely::kYes;
        if (marker == rules_.think_begin) {
            return likely(in_reasoning_ ? !reasoned_ : !shown_ && !thought_);
        }
        if (marker == rules_.think_end) {
            const bool yes = in_reasoning_ || (!shown_ && !thought_);
            if (yes || !IsIn(rules_.dropped, marker)) return likely(yes);
        }
        if (!in_reasoning_) {
            const bool framed = thought_ || !rules_.frame_behind_thought;
            if (marker == rules_.frame_begin) return likely(!shown_ && framed);
            if (marker == rules_.frame_end && unclosed_ > 0) return Likely::kNo;
            if (!shown_ && (called_ || IsIn(rules_.begins, marker))) return Likely::kYes;
        }
        return OnlyMarkers(held_, marker.size(), outside_, begins_call_, over_);
    }

    void Marker(std::string_view marker) {
        if (marker == rules_.think_begin) return Think();
        for (const CallForm& form : rules_.calls) {
            if (marker != form.begin) continue;
            held_.insert(0, marker.substr(marker.size() - form.kept));
            return BeginCall(form, std::string(marker.substr(0, marker.size() - form.kept)));
        }
        if (marker == rules_.think_end) in_reasoning_ = false;
        content_.Cut();
    }

    void BeginCall(const CallForm& form, std::string shown) {
        call_ = {.form = &form, .shown = std::move(shown), .scan = ValueScan(form.style)};
        call_.searched = form.kept;
        call_.thought = in_reasoning_;
        if (in_reasoning_) call_.ends = {rules_.think_end};
        if (!form.end.empty()) {
            call_.ends.push_back(form.end);
            // A begin marker that contains the end marker would hide it until it is complete.
            if (form.begin.find(form.end) == form.begin.npos) call_.ends.push_back(form.begin);
            call_.ends.insert(call_.ends.end(), turn_ends_.begin(), turn_ends_.end());
            return;
        }
        for (const CallForm& other : rules_.calls) call_.ends.push_back(other.begin);
        call_.ends.insert(call_.ends.end(), rules_.dropped.begin(), rules_.dropped.end());
    }

    // After a call whose format repeats: checks whether another call follows. Returns false while
    // this is undecided.
    bool StepBehindCall() {
        const size_t at = held_.find_first_not_of(" \t\r\n,;");
        if (at == held_.npos && !over_) return false;
        const CallForm* form = std::exchange(again_, nullptr);
        if (at == held_.npos || (held_[at] != '{' && held_[at] != '[')) return true;
        std::string shown = held_.substr(0, at);
        held_.erase(0, at);
        BeginCall(*form, std::move(shown));
        return true;
    }

    // After calls in the reasoning: if only calls and markers follow, the model forgot to end the
    // reasoning. Returns false while this is undecided.
    bool StepBehindThoughtCalls(AnswerDelta& delta) {
        const size_t at = held_.find_first_not_of(kTagBlanks);
        if (at == held_.npos && !over_) return false;
        if (at == held_.npos) {
            in_reasoning_ = false;
            TakeCalls(std::exchange(thought_calls_, {}).calls, delta);
            return true;
        }
        const std::string_view rest = std::string_view(held_).substr(at);
        std::string_view found;
        bool begun = false;
        for (const std::string_view marker : outside_) {
            if (rest.starts_with(marker) && marker.size() > found.size()) found = marker;
            begun = begun || marker.starts_with(rest);
        }
        if (found.empty() && begun && !over_) return false;
        if (found.empty() || found == rules_.think_end || found == rules_.think_begin) {
            TakeAsThought(delta);
            return true;
        }
        const bool call = IsIn(begins_call_, found);
        thought_calls_.text += held_.substr(0, at + (call ? 0 : found.size()));
        held_.erase(0, at + found.size());
        if (call) Marker(found);
        return true;
    }

    // Calls in the reasoning were a thought.
    void TakeAsThought(AnswerDelta& delta) {
        if (thought_calls_.calls.empty()) return;
        reasoned_ = true;
        reasoning_.Add(std::exchange(thought_calls_, {}).text, delta.reasoning);
    }

    void TakeCalls(std::vector<ToolCall> calls, AnswerDelta& delta) {
        for (ToolCall& call : calls) delta.tool_calls.push_back(std::move(call));
        content_.Cut();
        called_ = true;
        shown_ = thought_ = reasoned_ = false;
        unclosed_ = 0;
    }

    // Advances the scan to offset `end` of held_.
    void Scan(size_t end) {
        if (end <= call_.scanned) return;
        const std::string_view held = held_;
        if (call_.scanned == 0) {
            const std::string_view text = TrimBlanks(held.substr(0, end));
            if (text.empty()) return;
            const bool json = text[0] == '{' || text[0] == '[';
            call_.tagged = call_.form->tags && !json;
        }
        call_.scan.Feed(held.substr(call_.scanned, end - call_.scanned));
        call_.scanned = end;
    }

    // Whether an end marker at `at` is inside a value.
    bool Inside(size_t at) {
        if (literal_) return false;
        const std::string_view body = std::string_view(held_).substr(0, at);
        if (call_.tagged) return call_.tags.Inside(body, call_.form->end);
        if (call_.form->last.empty()) return call_.scan.inside();
        const std::string_view text = TrimBlanks(body);
        return text.empty() || call_.form->last.find(text.back()) == text.npos;
    }

    // Shows the first `size` bytes of held_, which begin no call, with the marker before them.
    bool Refuse(size_t size, AnswerDelta& delta) {
        const std::string shown = std::exchange(call_, OpenCall()).shown + held_.substr(0, size);
        held_.erase(0, size);
        again_ = nullptr;
        Out(shown, delta);
        return true;
    }

    bool StepInCall(AnswerDelta& delta) {
        const Likely likely = call_.likely ? Likely::kYes : MayBeCalls(held_, call_.form->kept);
        if (likely == Likely::kNo) return Refuse(call_.form->kept, delta);
        call_.likely = likely == Likely::kYes;
        for (;;) {
            const FoundMarker found = FindMarker(held_, call_.ends, call_.searched);
            const bool none = found.at == std::string::npos;
            const size_t known =
                none ? held_.size() - (over_ ? 0 : BegunAtEnd(held_, call_.ends)) : found.at;
            Scan(known);
            if (call_.form->end.empty() && call_.scan.done()) {
                return EndHere(call_.scan.end(), delta);
            }
            if (none) {
                call_.searched = std::max(call_.searched, known);
                if (call_.streams() && options_.parts) {
                    TakePart(std::string_view(held_).substr(0, known), delta);
                }
                return false;
            }
            const std::string_view marker = call_.ends[found.marker];
            if (call_.thought && marker == rules_.think_end) return Refuse(found.at, delta);
            // The start of another call ends only a call whose JSON is complete.
            const bool early =
                !call_.form->end.empty() && marker == call_.form->begin && !call_.scan.done();
            if (IsIn(turn_ends_, marker) || (!early && !Inside(found.at)))
                return EndAt(found.at, marker, delta);
            call_.skipped = call_.skipped || !early;
            call_.searched = found.at + 1;
        }
    }

    // Ends the call with its JSON.
    bool EndHere(size_t end, AnswerDelta& delta) {
        const std::string body = held_.substr(0, end);
        held_.erase(0, end);
        again_ = call_.form->repeats && !call_.thought ? call_.form : nullptr;
        EndCall(body, "", true, delta);
        return true;
    }

    bool EndAt(size_t at, std::string_view marker, AnswerDelta& delta) {
        const bool own = !call_.form->end.empty() && marker == call_.form->end;
        const std::string body = held_.substr(0, at);
        held_.erase(0, own ? at + marker.size() : at);
        EndCall(body, own ? marker : "", true, delta);
        return true;
    }

    // Returns whether the call is streamed in parts.
    bool TakePart(std::string_view body, AnswerDelta& delta) {
        const bool begins = !call_.begun();
        std::string arguments;
        if (call_.tagged) {
            call_.tag_stream.Take(body, *call_.form->tagged, options_.types(), arguments);
        } else {
            call_.stream.Take(body, arguments);
        }
        if (!call_.begun()) return false;
        if (begins || !arguments.empty()) {
            const std::string& name = call_.tagged ? call_.tag_stream.name() : call_.stream.name();
            delta.call_parts.push_back({begins ? name : "", std::move(arguments), begins, false});
        }
        return true;
    }

    // Returns false if the call has no parts.
    bool EndParts(std::string_view body, bool ended, AnswerDelta& delta) {
        if (!call_.streams() || !options_.parts || !TakePart(body, delta)) return false;
        if (call_.tagged) {
            EndTags(body, ended, delta);
            return true;
        }
        if (!call_.stream.done()) {
            std::string rest;
            call_.stream.End(rest);
            if (!rest.empty()) delta.call_parts.push_back({"", std::move(rest), false, false});
            return true;
        }
        delta.call_parts.push_back({"", "", false, true});
        AddWhole(CallsBehind(body.substr(call_.stream.at())), delta);
        return true;
    }

    // If the call is cut off, its last part does not end it.
    void EndTags(std::string_view body, bool ended, AnswerDelta& delta) {
        Calls calls = ReadCalls(body, ended);
        if (!calls || calls->empty()) return;
        std::string rest;
        call_.tag_stream.End(body, &calls->front(), rest);
        delta.call_parts.push_back({"", std::move(rest), false, true});
        calls->erase(calls->begin());
        AddWhole(*calls, delta);
    }

    static void AddWhole(const std::vector<ToolCall>& calls, AnswerDelta& delta) {
        for (const ToolCall& call : calls) {
            delta.call_parts.push_back({call.name, call.ArgumentsText(), true, false});
            delta.call_parts.push_back({"", "", false, true});
        }
    }

    // end: the end marker, or what has arrived of it. ended: the call is not cut off.
    void EndCall(std::string_view body, std::string_view end, bool ended, AnswerDelta& delta) {
        const bool in_parts = EndParts(body, ended, delta);
        Calls calls = in_parts ? Calls() : ReadCalls(body, ended);
        const bool begun = call_.tagged && ReadBegunTags(body);
        const OpenCall call = std::exchange(call_, OpenCall());
        if (calls && call.thought) {
            thought_calls_.text.append(call.shown).append(body).append(end);
            std::ranges::move(*calls, std::back_inserter(thought_calls_.calls));
            return;
        }
        if (in_parts || calls)
            return TakeCalls(std::move(calls).value_or(Calls::value_type()), delta);
        again_ = nullptr;
        // Another call may begin within the text, unless a stream has sent that text.
        constexpr int kMostRetries = 64;
        const size_t next = body.find(call.form->begin, call.form->kept);
        const bool retries = next != body.npos && retries_ < kMostRetries && !begun;
        const std::string_view text = retries ? body.substr(0, next) : body;
        ShowNoCall(call.shown + std::string(text) + std::string(retries ? "" : end), delta);
        if (!retries) return;
        ++retries_;
        held_.insert(0, std::string(body.substr(next)) + std::string(end));
    }

    // The calls in the text of the current one. ended: it is not cut off.
    Calls ReadCalls(std::string_view body, bool ended) {
        // An incomplete value must not count as a call, nor a call whose arguments have not begun.
        const bool json = call_.form->style == ValueScan::Style::kJson;
        const bool whole =
            call_.tagged ? call_.tags.Whole(body, call_.form->end) : !json || call_.scan.done();
        Calls calls;
        if (ended || whole) calls = call_.form->read(body, options_.types());
        // A stream has sent the call when its JSON was complete, whatever followed, and a call with
        // tags from its first long value on.
        if (!calls && call_.tagged && (ended || whole)) calls = ReadBegunTags(body);
        if (!calls && !call_.tagged && call_.form->streams) calls = ReadBegun(body);
        return calls;
    }

    Calls ReadBegunTags(std::string_view body) const {
        if (call_.form->tagged == nullptr || call_.thought) return {};
        TagStream stream;
        std::string arguments;
        stream.Take(body, *call_.form->tagged, options_.types(), arguments);
        if (!stream.begun()) return {};
        stream.End(body, nullptr, arguments);
        return std::vector{CallAsWritten(stream.name(), std::move(arguments))};
    }

    // Shows text that began like a call, with its markers.
    void ShowNoCall(const std::string& text, AnswerDelta& delta) {
        if (in_reasoning_) return Out(text, delta);
        content_.End(delta.content);
        delta.content += text;
        shown_ = true;
        content_ = Stretch();
    }

    // Parses a call that is cut off, or continues wrongly, after its arguments. Arguments that are
    // no JSON stay text, as in a stream; reasoning may mention a call in this way.
    Calls ReadBegun(std::string_view body) const {
        CallStream stream;
        std::string arguments;
        stream.Take(body, arguments);
        ToolCall call = CallAsWritten(stream.name(), std::move(arguments));
        if (!stream.done() || (call.as_written && call_.thought)) return {};
        std::vector<ToolCall> calls = CallsBehind(body.substr(stream.at()));
        calls.insert(calls.begin(), std::move(call));
        return calls;
    }

    // Models write several calls between one pair of tags: the calls in the text behind the first
    // call's arguments.
    std::vector<ToolCall> CallsBehind(std::string_view text) const {
        for (const std::string_view skipped : {"}", ",;"}) {
            text = TrimBlanks(text);
            if (text.find_first_of(skipped) == 0) text.remove_prefix(1);
        }
        text = TrimBlanks(text);
        if (!text.starts_with('{')) return {};
        return call_.form->read(text, options_.types()).value_or(Calls::value_type());
    }

    void NoCall(AnswerDelta& delta) {
        if (call_.begun()) return EndCall(std::exchange(held_, {}), "", false, delta);
        const std::string shown = std::exchange(call_, OpenCall()).shown;
        ShowNoCall(shown + std::exchange(held_, {}), delta);
    }

    AnswerRules rules_;
    const GrammarOptions options_;
    std::vector<std::string_view> outside_, begins_call_;
    std::vector<std::string_view> turn_ends_;  // dropped markers that are control tokens
    std::vector<bool> control_;                // by marker of outside_: it is a control token
    std::string held_;
    OpenCall call_;
    const CallForm* again_ = nullptr;  // format of the previous call, if it repeats
    bool in_reasoning_ = false;
    bool over_ = false;     // the answer has ended
    bool literal_ = false;  // end markers count even inside strings
    // Since the beginning or the last call:
    bool thought_ = false;   // reasoning has begun
    bool reasoned_ = false;  // reasoning was passed on
    bool shown_ = false;     // content was passed on
    bool called_ = false;    // a call came before
    int unclosed_ = 0;       // frame_begin in the content without frame_end
    int retries_ = 0;        // texts that were searched again for a call
    ThoughtCalls thought_calls_;
    Stretch content_, reasoning_;
};

}  // namespace

std::unique_ptr<AnswerParser::Grammar> MakeTagGrammar(ToolCallFormat family,
                                                      GrammarOptions options) {
    return std::make_unique<TagGrammar>(RulesOf(family), std::move(options));
}

}  // namespace weft::chat
