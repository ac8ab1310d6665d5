#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json_digits.h"
#include "base/printable.h"

namespace weft {
namespace {

// Tracks the reader's position for error texts: nlohmann's parser does not report it to a builder.
class Cursor {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    explicit Cursor(const char** at) : at_(at) {}
    reference operator*() const { return **at_; }
    Cursor& operator++() {
        ++*at_;
        return *this;
    }
    bool operator==(const Cursor& other) const { return *at_ == *other.at_; }
    bool operator!=(const Cursor& other) const { return *at_ != *other.at_; }

  private:
    const char** at_;
};

constexpr size_t kShownBytes = 100;  // of a repeated key

// Marks a binary value, which JSON text does not have, as the digits of an integer.
constexpr uint64_t kDigitsSubtype = 0x6469'6769'7473;

// Handles the events of nlohmann's parser. Finished values wait on one stack until the list or
// object around them ends; its size is then known, so that no container is reallocated.
template <typename Json>
class Builder {
  public:
    Builder(const JsonLimits& limits, const char* const& at, const char* begin, bool digits)
        : limits_(limits), at_(at), begin_(begin), digits_(digits) {}

    bool null() { return Put(nullptr); }
    bool boolean(bool value) { return Put(value); }
    bool number_integer(int64_t value) { return Put(value); }
    bool number_unsigned(uint64_t value) { return Put(value); }
    bool number_float(double value, const std::string& text) {
        if (!digits_ || text.find_first_not_of("-0123456789") != text.npos) return Put(value);
        return Put(Json::binary({text.begin(), text.end()}, kDigitsSubtype));
    }
    bool string(std::string& value) { return Put(std::move(value)); }
    bool binary(typename Json::binary_t&) { return false; }  // not in text
    bool start_object(size_t) { return Open(); }
    bool start_array(size_t) { return Open(); }

    bool key(std::string& key) {
        if (keys_.size() - frames_.back().keys >= limits_.keys) {
            return Over("an object with more than {} members", limits_.keys);
        }
        keys_.push_back(std::move(key));
        return true;
    }

    bool end_object() {
        const Frame frame = std::move(frames_.back());
        Json object(Json::value_t::object);
        FillObject(frame, object.template get_ref<typename Json::object_t&>());
        if (error_) return false;
        keys_.resize(frame.keys);
        return Close(frame, std::move(object));
    }

    bool end_array() {
        const Frame frame = std::move(frames_.back());
        Json array(Json::value_t::array);
        const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(frame.values);
        array.template get_ref<typename Json::array_t&>().assign(
            std::make_move_iterator(begin), std::make_move_iterator(values_.end()));
        return Close(frame, std::move(array));
    }

    // The text of nlohmann's exception ends with the input it has read last, which must not be
    // quoted.
    bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
        constexpr int kOutOfRange = 406;
        offset_ = position;
        if (error.id == kOutOfRange)
            return Fail(ErrorCode::kCorrupt, "a number beyond the range of a double");
        std::string what = error.what();
        what.resize(std::min(what.find("; last read: "), what.size()));
        const size_t words = what.find("syntax error ");
        return Fail(ErrorCode::kCorrupt, words == what.npos ? "not JSON" : what.substr(words));
    }

    const std::optional<Error>& error() const { return error_; }
    size_t offset() const { return offset_; }
    size_t count() const { return count_; }
    Json Take() { return std::move(values_.front()); }

  private:
    struct Frame {
        size_t values, keys;  // counts before this container
    };

    template <typename T>
    bool Put(T&& value) {
        if (!Count()) return false;
        values_.emplace_back(std::forward<T>(value));
        return true;
    }
    bool Count() {
        if (++count_ <= limits_.values) return true;
        return Over("more than {} values", limits_.values);
    }
    bool Open() {
        if (frames_.size() >= limits_.depth) return Over("nested deeper than {}", limits_.depth);
        if (!Count()) return false;
        frames_.push_back({values_.size(), keys_.size()});
        return true;
    }
    bool Close(const Frame& frame, Json value) {
        values_.resize(frame.values);
        values_.push_back(std::move(value));
        frames_.pop_back();
        return true;
    }

    void FillObject(const Frame& frame, nlohmann::json::object_t& object) {
        for (size_t i = frame.keys; i < keys_.size(); ++i) {
            const auto [at, first] =
                object.insert_or_assign(std::move(keys_[i]), ValueOf(frame, i));
            if (!first) Repeated(at->first);
        }
    }
    void FillObject(const Frame& frame, nlohmann::ordered_json::object_t& object) {
        const size_t count = keys_.size() - frame.keys;
        DropRepeatedKeys(frame);
        object.reserve(count);
        for (size_t i = frame.keys; i < keys_.size(); ++i) {
            Json& value = ValueOf(frame, i);
            if (value.is_discarded()) continue;
            static_cast<typename nlohmann::ordered_json::object_t::Container&>(object).emplace_back(
                std::move(keys_[i]), std::move(value));
        }
    }
    // For each repeated key, the first member gets the last value, and the others are marked.
    void DropRepeatedKeys(const Frame& frame) {
        order_.resize(keys_.size() - frame.keys);
        std::iota(order_.begin(), order_.end(), frame.keys);
        std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
            const int compared = keys_[a].compare(keys_[b]);
            return compared != 0 ? compared < 0 : a < b;
        });
        for (size_t begin = 0; begin < order_.size();) {
            size_t end = begin + 1;
            while (end < order_.size() && keys_[order_[end]] == keys_[order_[begin]]) ++end;
            if (end - begin > 1) {
                Repeated(keys_[order_[begin]]);
                ValueOf(frame, order_[begin]) = std::move(ValueOf(frame, order_[end - 1]));
            }
            for (size_t i = begin + 1; i < end; ++i) {
                ValueOf(frame, order_[i]) = Json(Json::value_t::discarded);
            }
            begin = end;
        }
    }
    void Repeated(std::string_view key) {
        if (!limits_.unique) return;
        offset_ = static_cast<size_t>(at_ - begin_);
        Fail(ErrorCode::kCorrupt, fmt::format("a repeated key in an object: '{}'",
                                              Printable(key.substr(0, kShownBytes))));
    }
    Json& ValueOf(const Frame& frame, size_t key) {
        return values_[frame.values + key - frame.keys];
    }

    template <typename... Args>
    bool Over(fmt::format_string<Args...> format, Args&&... args) {
        offset_ = static_cast<size_t>(at_ - begin_);
        return Fail(ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...));
    }
    bool Fail(ErrorCode code, std::string message) {
        if (!error_) error_ = Error{code, std::move(message)};
        return false;
    }

    const JsonLimits& limits_;
    const char* const& at_;
    const char* const begin_;
    const bool digits_;
    std::vector<Json> values_;
    std::vector<std::string> keys_;
    std::vector<Frame> frames_;
    std::vector<size_t> order_;
    size_t count_ = 0, offset_ = 0;
    std::optional<Error> error_;
};

Error At(std::string_view text, size_t offset, const Error& error) {
    text = text.substr(0, std::max<size_t>(offset, 1) - 1);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    const size_t begin = text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1;
    return MakeError(error.code, "line {}, column {}: {}", lines + 1, text.size() - begin + 1,
                     error.message);
}

template <typename Json>
Result<Json> Parse(std::string_view text, const JsonLimits& limits, size_t* used,
                   bool digits = false) {
    if (text.size() > limits.bytes) {
        return MakeError(ErrorCode::kUnsupported, "JSON of {} bytes; expected at most {}",
                         text.size(), limits.bytes);
    }
    const char* at = text.data();
    const char* end = text.data() + text.size();
    Builder<Json> builder(limits, at, text.data(), digits);
    try {
        const bool read = Json::sax_parse(Cursor(&at), Cursor(&end), &builder,
                                          Json::input_format_t::json, true, limits.comments);
        if (used != nullptr) *used = builder.count();
        const size_t nul = read ? text.find('\0') : text.npos;  // nlohmann's reader stops there
        if (nul != text.npos) return At(text, nul + 1, {ErrorCode::kCorrupt, "a NUL byte"});
        if (read) return builder.Take();
    } catch (const std::bad_alloc&) {
        return MakeError(ErrorCode::kOutOfMemory, "no memory for JSON of {} bytes", text.size());
    } catch (const std::exception&) {  // its message may quote the text
        return MakeError(ErrorCode::kCorrupt, "not JSON ({} bytes)", text.size());
    }
    const Error none{ErrorCode::kCorrupt, "not JSON"};
    return At(text, builder.offset(), builder.error().value_or(none));
}

template <typename Json>
Json OrDiscarded(Result<Json> parsed) {
    return parsed.ok() ? std::move(parsed).value() : Json(Json::value_t::discarded);
}

}  // namespace

Result<nlohmann::json> ParseJsonText(std::string_view text, const JsonLimits& limits,
                                     size_t* used) {
    return Parse<nlohmann::json>(text, limits, used);
}

Result<nlohmann::ordered_json> ParseOrderedJsonText(std::string_view text, const JsonLimits& limits,
                                                    size_t* used) {
    return Parse<nlohmann::ordered_json>(text, limits, used);
}

Result<nlohmann::ordered_json> ParseJsonWithDigits(std::string_view text, const JsonLimits& limits,
                                                   size_t* used) {
    return Parse<nlohmann::ordered_json>(text, limits, used, true);
}

bool IsDigits(const nlohmann::ordered_json& value) {
    return value.is_binary() && value.get_binary().has_subtype() &&
           value.get_binary().subtype() == kDigitsSubtype;
}

std::string DigitsOf(const nlohmann::ordered_json& value) {
    const auto& bytes = value.get_binary();
    return {bytes.begin(), bytes.end()};
}

std::optional<double> NumberOf(const nlohmann::ordered_json& value) {
    if (value.is_number()) return value.get<double>();
    if (!IsDigits(value)) return std::nullopt;
    return std::strtod(DigitsOf(value).c_str(), nullptr);
}

// nlohmann writes a binary value as {"bytes":[49,50],"subtype":N}. A string's quotes are escaped,
// so no string has this text. (An object may hold the same text; only digits are replaced.)
std::string DumpJson(const nlohmann::ordered_json& json,
                     nlohmann::ordered_json::error_handler_t on_invalid) {
    constexpr std::string_view kHead = "{\"bytes\":[";
    static const std::string kTail = "],\"subtype\":" + std::to_string(kDigitsSubtype) + "}";
    const std::string text = json.dump(-1, ' ', false, on_invalid);
    std::string out;
    size_t done = 0;
    for (size_t at = text.find(kTail); at != text.npos; at = text.find(kTail, done)) {
        const size_t head = text.rfind(kHead, at);
        if (head == text.npos || head < done) break;
        std::string digits;
        bool plain = true;
        for (size_t i = head + kHead.size(); i < at && plain;) {
            int code = 0;
            i = static_cast<size_t>(std::from_chars(&text[i], &text[at], code).ptr - &text[0]) + 1;
            plain = code == '-' || (code >= '0' && code <= '9');
            digits += static_cast<char>(code);
        }
        const size_t end = at + kTail.size();
        out.append(text, done, (plain ? head : end) - done).append(plain ? digits : "");
        done = end;
    }
    return out.empty() ? text : out.append(text, done);
}

nlohmann::json JsonOrDiscarded(std::string_view text, const JsonLimits& limits) {
    return OrDiscarded(ParseJsonText(text, limits));
}

nlohmann::ordered_json OrderedJsonOrDiscarded(std::string_view text, const JsonLimits& limits) {
    return OrDiscarded(ParseOrderedJsonText(text, limits));
}

}  // namespace weft
