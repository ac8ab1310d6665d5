#include "chat/call_tags.h"

#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/answer_grammar.h"

namespace weft::chat {
namespace {

constexpr std::string_view kTagBlanks = " \t\r\n";
constexpr size_t kMostKeyBytes = 4096;

// A JSON string without its quotes. Bytes that are no UTF-8 stay (kLetters).
std::string Escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '"': out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            default:
                if (static_cast<unsigned char>(c) < 0x20) {
                    constexpr std::string_view kDigits = "0123456789abcdef";
                    out += "\\u00";
                    out += kDigits[static_cast<size_t>(c) >> 4];
                    out += kDigits[static_cast<size_t>(c) & 15];
                } else {
                    out += c;
                }
        }
    }
    return out;
}

std::string JsonOf(const OrderedJson& value) {
    if (value.is_string()) return '"' + Escaped(value.get_ref<const std::string&>()) + '"';
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Parses JSON without kLetters; discarded on errors.
OrderedJson PlainJson(std::string text) {
    std::erase(text, kLetters);
    return OrderedJson::parse(text, nullptr, false);
}

// Whether the text may go on as `wanted`.
bool MayBegin(std::string_view text, std::string_view wanted) {
    return wanted.starts_with(text.substr(0, wanted.size()));
}

}  // namespace

std::string_view ValueText(std::string_view value, const ArgumentTags& tags) {
    constexpr std::string_view kCdata = "<![CDATA[", kCdataEnd = "]]>";
    if (tags.lines && value.starts_with('\n')) value.remove_prefix(1);
    if (tags.lines && value.ends_with('\n')) value.remove_suffix(1);
    const bool cdata = tags.cdata && value.starts_with(kCdata) && value.ends_with(kCdataEnd) &&
                       value.size() >= kCdata.size() + kCdataEnd.size();
    return cdata ? value.substr(kCdata.size(), value.size() - kCdata.size() - kCdataEnd.size())
                 : value;
}

WrittenKey::WrittenKey(std::string_view written) {
    constexpr std::string_view kText = " string=\"true\"", kOther = " string=\"false\"";
    is_text = written.ends_with(kText);
    is_json = written.ends_with(kOther);
    if (is_text) written.remove_suffix(kText.size());
    if (is_json) written.remove_suffix(kOther.size());
    name = WithoutQuotes(written);
}

OrderedJson WrittenKey::ValueOf(std::string_view function, std::string_view value,
                                const ToolTypes& types) const {
    if (is_text) return std::string(value);
    if (OrderedJson json = is_json ? ReadWrittenJson(value) : OrderedJson();
        is_json && !json.is_discarded()) {
        return json;
    }
    return types.ValueOf(function, name, value);
}

void TagStream::Take(std::string_view body, std::span<const TaggedCall> forms,
                     const ToolTypes& types, std::string& arguments) {
    for (bool more = true; more;) {
        switch (state_) {
            case State::kName: more = ReadName(body, forms); break;
            case State::kKey: more = ReadKey(body); break;
            case State::kValue: more = ReadValue(body, types); break;
            case State::kStopped: more = false; break;
        }
    }
    Give(arguments);
}

void TagStream::Give(std::string& arguments) {
    if (!begun_) return;
    arguments += std::string_view(json_).substr(given_);
    given_ = json_.size();
}

// The following functions return false if they need more text, or if the rest of the call is parsed
// when it is complete.
bool TagStream::ReadName(std::string_view body, std::span<const TaggedCall> forms) {
    const size_t begin = std::min(body.find_first_not_of(kTagBlanks), body.size());
    const std::string_view text = body.substr(begin);
    for (const TaggedCall& form : forms) {
        if (!MayBegin(text, form.open)) continue;
        if (text.size() <= form.open.size()) return false;
        const std::string_view rest = text.substr(form.open.size());
        // The name ends with its tag; without a tag, at the next one.
        size_t end = rest.find(form.open.empty() ? '<' : '>');
        if (end == rest.npos) return false;
        name_ = form.open.empty() ? TrimBlanks(rest.substr(0, end))
                                  : WithoutQuotes(rest.substr(0, end));
        state_ = IsCallName(name_) ? State::kKey : State::kStopped;
        tags_ = form.tags;
        at_ = begin + form.open.size() + end + (form.open.empty() ? 0 : 1);
        return true;
    }
    state_ = State::kStopped;
    return false;
}

bool TagStream::ReadKey(std::string_view body) {
    const auto skip = [&](size_t from) {
        return std::min(body.find_first_not_of(kTagBlanks, from), body.size());
    };
    const size_t begin = skip(at_);
    const auto stop = [&] {
        state_ = State::kStopped;
        return false;
    };
    if (!MayBegin(body.substr(begin), tags_.key_begin)) return stop();
    if (body.size() - begin < tags_.key_begin.size()) return false;
    const size_t key_at = begin + tags_.key_begin.size();
    const size_t end = body.find(tags_.key_end, key_at);
    if (end == body.npos) return body.size() - key_at > kMostKeyBytes ? stop() : false;
    size_t value_at = end + tags_.key_end.size();
    if (!tags_.value_begin.empty()) {
        value_at = skip(value_at);
        if (!MayBegin(body.substr(value_at), tags_.value_begin)) return stop();
        value_at += tags_.value_begin.size();
        if (value_at > body.size()) return false;
    }
    key_ = WrittenKey(body.substr(key_at, end - key_at));
    at_ = searched_ = shown_ = value_at;
    doubtful_ = body.npos;
    state_ = State::kValue;
    return true;
}

// A value may contain its end tag. An end tag before another key counts; one before other text may
// be part of the value or end the call.
bool TagStream::ReadValue(std::string_view body, const ToolTypes& types) {
    for (;;) {
        const size_t end = body.find(tags_.value_end, searched_);
        if (end == body.npos) break;
        const size_t behind = end + tags_.value_end.size();
        const size_t next = std::min(body.find_first_not_of(kTagBlanks, behind), body.size());
        const std::string_view rest = body.substr(next);
        if (rest.starts_with(tags_.key_begin)) {
            EndValue(body, end, types);
            at_ = behind;
            state_ = State::kKey;
            return true;
        }
        doubtful_ = std::min(doubtful_, end);
        searched_ = end;
        if (MayBegin(rest, tags_.key_begin)) break;
        ++searched_;
    }
    // Models forget end tags: the value may end at the next key.
    doubtful_ = std::min(doubtful_, body.find(tags_.key_begin, at_));
    Show(body, types);
    return false;
}

// Writes the text of a string as far as it is known to belong to the value.
void TagStream::Show(std::string_view body, const ToolTypes& types) {
    if (tags_.cdata || !key_.IsText(name_, types)) return;
    size_t known = body.size() - BegunAtEnd(body, {tags_.value_end, tags_.key_begin});
    known = std::min(known, doubtful_);
    if (tags_.lines && known > at_ && body[known - 1] == '\n') --known;
    if (!open_) {
        if (known < at_ + kLeastBytes) return;
        AddKey(key_.name);
        json_ += '"';
        open_ = begun_ = true;
        if (tags_.lines && body[at_] == '\n') ++shown_;
    }
    if (known <= shown_) return;
    json_ += Escaped(body.substr(shown_, known - shown_));
    shown_ = known;
}

void TagStream::EndValue(std::string_view body, size_t end, const ToolTypes& types) {
    const std::string_view text = ValueText(body.substr(at_, end - at_), tags_);
    if (!open_) {
        // (As in Show, if the text had arrived byte by byte.)
        const bool breaks = tags_.lines && end > at_ && body[end - 1] == '\n';
        const bool is_long = end - at_ - (breaks ? 1 : 0) >= kLeastBytes;
        begun_ = begun_ || (is_long && !tags_.cdata && key_.IsText(name_, types));
        AddKey(key_.name);
        json_ += JsonOf(key_.ValueOf(name_, text, types));
        return;
    }
    const auto text_end = static_cast<size_t>(text.data() + text.size() - body.data());
    json_ += Escaped(body.substr(shown_, text_end - std::min(text_end, shown_)));
    json_ += '"';
    open_ = false;
}

void TagStream::AddKey(std::string_view key) {
    if (std::exchange(has_keys_, true)) json_ += ", ";
    json_ += '"' + Escaped(key) + "\": ";
}

void TagStream::End(std::string_view body, const ToolCall* call, std::string& arguments) {
    std::string_view text;
    if (call != nullptr && open_) {
        const auto value = call->arguments.find(key_.name);
        if (value != call->arguments.end() && value->is_string()) {
            text = value->get_ref<const std::string&>();
        }
    } else if (open_) {
        const size_t end = std::min(body.find(tags_.value_end, at_), body.size());
        text = ValueText(body.substr(at_, end - at_), tags_);
    }
    if (open_) {
        const size_t begin = at_ + (tags_.lines && body[at_] == '\n' ? 1 : 0);
        const std::string_view shown = body.substr(begin, shown_ - begin);
        if (text.starts_with(shown)) json_ += Escaped(text.substr(shown.size()));
        json_ += '"';
    }
    // (Of a key that comes twice, the last value counts.)
    const OrderedJson known = PlainJson(json_ + '}');
    if (call != nullptr && call->arguments.is_object()) {
        for (const auto& [key, value] : call->arguments.items()) {
            const std::string json = JsonOf(value);
            if (known.is_object() && known.value(key, OrderedJson()) == PlainJson(json)) continue;
            AddKey(key);
            json_ += json;
        }
    }
    json_ += '}';
    open_ = false;
    state_ = State::kStopped;
    Give(arguments);
}

}  // namespace weft::chat
