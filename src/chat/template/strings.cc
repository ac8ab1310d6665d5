#include "chat/template/strings.h"

#include <string.h>  // memmem
#include <utf8proc.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "chat/template/letters.h"

namespace weft::chat::jinja {
namespace {

constexpr int64_t kPadPiece = 1024;  // bytes that are charged at once

std::string Encoded(const Points& points) {
    std::string text;
    for (size_t i = 0; i < points.size; ++i) {
        utf8proc_uint8_t bytes[4];
        const auto size = utf8proc_encode_char(points.at[i], bytes);
        text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    return text;
}

bool HasPoint(std::string_view set, std::string_view point) {
    for (size_t at = 0; at < set.size(); at = NextPoint(set, at)) {
        if (set.substr(at, NextPoint(set, at) - at) == point) return true;
    }
    return false;
}

// Start of the code point that ends at `end`.
size_t PreviousPoint(std::string_view text, size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
    return NextPoint(text, begin) == end ? begin : end - 1;
}

// Whether the sigma at text[at, end) ends a word of the letters text[begin, ...).
bool IsFinalSigma(std::string_view text, size_t begin, size_t at, size_t end) {
    const auto is_cased = [&](size_t place) { return IsCased(PointAt(text, place)); };
    while (end < text.size() && IsCaseIgnorable(PointAt(text, end))) end = NextPoint(text, end);
    if (end < text.size() && is_cased(end)) return false;
    while (at > begin) {
        at = PreviousPoint(text, at);
        if (!IsCaseIgnorable(PointAt(text, at))) return is_cased(at);
    }
    return false;
}

// Whether the character after `before` begins a word.
bool BeginsWord(Case to, int32_t before) {
    if (to == Case::kTitle) return !IsCased(before);
    const std::string_view openers = "-({[<";
    return IsSpace(before) ||
           (before < 128 && openers.find(static_cast<char>(before)) != std::string_view::npos);
}

// Parts between white space; after `most` splits, the last part is the untrimmed rest.
std::vector<TextRange> SpaceCuts(Charge& charge, std::string_view text, int64_t most) {
    std::vector<TextRange> parts;
    for (size_t at = 0; at < text.size();) {
        if (IsSpace(PointAt(text, at))) {
            at = NextPoint(text, at);
            continue;
        }
        charge.Grow(parts, 1);
        if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
            parts.push_back({at, text.size()});
            return parts;
        }
        const size_t begin = at;
        while (at < text.size() && !IsSpace(PointAt(text, at))) at = NextPoint(text, at);
        parts.push_back({begin, at});
    }
    return parts;
}

std::vector<TextRange> SpaceCutsRight(Charge& charge, std::string_view text, int64_t most) {
    std::vector<TextRange> parts;
    for (size_t at = text.size(); at > 0;) {
        const size_t begin = PreviousPoint(text, at);
        if (IsSpace(PointAt(text, begin))) {
            at = begin;
            continue;
        }
        charge.Grow(parts, 1);
        if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
            parts.push_back({0, at});
            break;
        }
        const size_t end = at;
        while (at > 0 && !IsSpace(PointAt(text, PreviousPoint(text, at)))) {
            at = PreviousPoint(text, at);
        }
        parts.push_back({at, end});
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

// Offsets of the separator from left to right, without overlaps; at most `most` (negative:
// unlimited).
std::vector<size_t> Places(Meter& meter, Charge& charge, std::string_view text,
                           std::string_view separator, int64_t most) {
    if (separator.empty()) meter.Fail(ErrorCode::kCorrupt, "split(): the separator is empty");
    std::vector<size_t> places;
    meter.Read(text.size());
    for (size_t at = 0; most < 0 || static_cast<int64_t>(places.size()) < most;) {
        at = FindIn(meter, text, separator, at);
        if (at == text.npos) break;
        charge.Grow(places, 1);
        places.push_back(at);
        at += separator.size();
    }
    return places;
}

// Offsets of the separator from right to left, without overlaps; at most `most` (negative:
// unlimited). Searches the reversed bytes, so the time is linear.
std::vector<size_t> PlacesFromRight(Meter& meter, Charge& charge, std::string_view text,
                                    std::string_view separator, int64_t most) {
    const std::string backward(text.rbegin(), text.rend());
    const std::string wanted(separator.rbegin(), separator.rend());
    std::vector<size_t> places = Places(meter, charge, backward, wanted, most);
    for (size_t& place : places) place = text.size() - place - separator.size();
    return places;
}

Value CutAt(Meter& meter, const Text& text, const std::vector<size_t>& places, size_t size) {
    ListBuilder parts(meter);
    size_t begin = 0;
    for (const size_t place : places) {
        parts.AddCut(text, begin, place);
        begin = place + size;
    }
    parts.AddCut(text, begin, text.size());
    return std::move(parts).Finish();
}

Value CutRanges(Meter& meter, const Text& text, const std::vector<TextRange>& ranges) {
    ListBuilder parts(meter);
    for (const TextRange& range : ranges) parts.AddCut(text, range.begin, range.end);
    return std::move(parts).Finish();
}

bool EndsLine(int32_t point) {
    return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

}  // namespace

size_t NextPoint(std::string_view text, size_t at) {
    if (static_cast<signed char>(text[at]) >= 0) return at + 1;
    return at + std::max<size_t>(CodePointLength(text, at), 1);
}

size_t CountPoints(std::string_view text) {
    size_t count = 0;
    for (size_t at = 0; at < text.size(); at = NextPoint(text, at)) ++count;
    return count;
}

size_t PointOffset(std::string_view text, size_t index) {
    size_t at = 0;
    for (; index > 0 && at < text.size(); --index) at = NextPoint(text, at);
    return at;
}

int32_t PointAt(std::string_view text, size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return first;
    const size_t size = CodePointLength(text, at);
    if (size == 0) return first;
    int32_t point = first & (0x7F >> size);
    for (size_t i = 1; i < size; ++i) {
        point = (point << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
    }
    return point;
}

size_t FindIn(Meter& meter, std::string_view text, std::string_view needle, size_t from) {
    if (needle.size() > text.size() || from > text.size() - needle.size()) return text.npos;
    if (needle.empty()) return from;
    const void* found =
        memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
    const size_t at = found == nullptr
                          ? text.npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
    meter.Read(std::min(at, text.size()) - from + needle.size());
    return at;
}

size_t FindLast(Meter& meter, std::string_view text, std::string_view needle) {
    if (needle.empty()) return text.size();
    Charge charge(&meter);
    const std::vector<size_t> places = PlacesFromRight(meter, charge, text, needle, 1);
    return places.empty() ? text.npos : places[0];
}

TextRange Strip(Meter& meter, std::string_view text, Ends ends,
                std::optional<std::string_view> chars) {
    const auto goes = [&](size_t begin, size_t end) {
        meter.Step(chars ? chars->size() / 8 + 1 : 0);
        if (chars) return HasPoint(*chars, text.substr(begin, end - begin));
        return IsSpace(PointAt(text, begin));
    };
    meter.Step();
    TextRange left{0, text.size()};
    while (ends != Ends::kRight && left.begin < left.end &&
           goes(left.begin, NextPoint(text, left.begin))) {
        left.begin = NextPoint(text, left.begin);
    }
    while (ends != Ends::kLeft && left.begin < left.end &&
           goes(PreviousPoint(text, left.end), left.end)) {
        left.end = PreviousPoint(text, left.end);
    }
    meter.Read(text.size() - (left.end - left.begin));
    return left;
}

Value ChangeCase(Meter& meter, const Text& text, Case to) {
    constexpr int32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
    TextBuilder builder(meter);
    meter.Step(text.size() / 4 + 1);
    const std::string_view bytes = text.view();
    // The filter `title` changes the letters of a word after the first as a separate text.
    size_t word = 0;
    int32_t before = 0;
    for (size_t at = 0; at < bytes.size();) {
        const size_t end = NextPoint(bytes, at);
        const int32_t point = PointAt(bytes, at);
        const bool words = to == Case::kTitle || to == Case::kTitleWord;
        const bool begins =
            (to == Case::kCapital && at == 0) || (words && (at == 0 || BeginsWord(to, before)));
        if (begins && to == Case::kTitleWord) word = end;
        Points changed{{point}, 1};
        if (to == Case::kUpper || (begins && to == Case::kTitleWord)) {
            changed = ToUpper(point);
        } else if (to == Case::kFolded) {
            changed = ToFolded(point);
        } else if (begins) {
            changed = ToTitle(point);
        } else if (point == kSigma && IsFinalSigma(bytes, word, at, end)) {
            changed.at[0] = kFinalSigma;
        } else {
            changed = ToLower(point);
        }
        const bool same = changed.size == 1 && changed.at[0] == point;
        if (same || (end - at == 1 && point >= 0x80)) {
            builder.AppendCut(text, at, end);
        } else {
            builder.Append(Encoded(changed), text.SourceAt(at));
        }
        before = point;
        at = end;
    }
    return std::move(builder).Finish();
}

Value Split(Meter& meter, const Text& text, std::optional<std::string_view> separator,
            int64_t most) {
    meter.Read(text.size());
    Charge charge(&meter);
    if (!separator) return CutRanges(meter, text, SpaceCuts(charge, text.view(), most));
    const std::vector<size_t> places = Places(meter, charge, text.view(), *separator, most);
    return CutAt(meter, text, places, separator->size());
}

Value SplitRight(Meter& meter, const Text& text, std::optional<std::string_view> separator,
                 int64_t most) {
    meter.Read(text.size());
    Charge charge(&meter);
    if (!separator) return CutRanges(meter, text, SpaceCutsRight(charge, text.view(), most));
    std::vector<size_t> places = PlacesFromRight(meter, charge, text.view(), *separator, most);
    std::reverse(places.begin(), places.end());
    return CutAt(meter, text, places, separator->size());
}

Value SplitLines(Meter& meter, const Text& text, bool keep_ends) {
    ListBuilder lines(meter);
    meter.Read(text.size());
    const std::string_view bytes = text.view();
    size_t begin = 0;
    for (size_t at = 0; at < bytes.size();) {
        size_t next = NextPoint(bytes, at);
        if (EndsLine(PointAt(bytes, at))) {
            if (bytes[at] == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
            lines.AddCut(text, begin, keep_ends ? next : at);
            begin = next;
        }
        at = next;
    }
    if (begin < bytes.size()) lines.AddCut(text, begin, bytes.size());
    return std::move(lines).Finish();
}

Value Pad(Meter& meter, const Text& text, int64_t width, Ends ends, char with) {
    meter.Read(text.size());
    const int64_t missing =
        std::max<int64_t>(width - static_cast<int64_t>(CountPoints(text.view())), 0);
    const int64_t left = ends == Ends::kLeft    ? missing
                         : ends == Ends::kRight ? 0
                                                : missing / 2 + (missing & width & 1);
    TextBuilder builder(meter);
    const auto add = [&](int64_t count) {
        for (; count > 0; count -= kPadPiece) {
            builder.Append(std::string(static_cast<size_t>(std::min(count, kPadPiece)), with));
        }
    };
    add(left);
    builder.Append(text);
    add(missing - left);
    return std::move(builder).Finish();
}

Value Replace(Meter& meter, const Text& text, std::string_view from, const Text& to, int64_t most) {
    TextBuilder builder(meter);
    const std::string_view bytes = text.view();
    size_t begin = 0, at = 0;
    for (int64_t done = 0; most < 0 || done < most; ++done) {
        if (from.empty() && at > bytes.size()) break;
        const size_t place = from.empty() ? at : FindIn(meter, bytes, from, at);
        if (place == bytes.npos) break;
        meter.Step();
        builder.AppendCut(text, begin, place);
        builder.Append(to);
        begin = place + from.size();
        // An empty string matches before every character and at the end.
        at = !from.empty() ? begin : place < bytes.size() ? NextPoint(bytes, place) : place + 1;
    }
    builder.AppendCut(text, begin, bytes.size());
    return std::move(builder).Finish();
}

}  // namespace weft::chat::jinja
