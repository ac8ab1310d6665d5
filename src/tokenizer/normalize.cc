#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/model.h"
#include "tokenizer/special.h"
#include "tokenizer/unicode.h"

namespace weft::tokenizer {
namespace {

using Point = utf8proc_int32_t;

utf8proc_category_t CategoryOf(uint32_t point) {
    return utf8proc_category(static_cast<Point>(point));
}

size_t Length(std::string_view text, size_t at) {
    return std::max<size_t>(CodePointLength(text, at), 1);
}

class NormalFormStep : public NormalizeStep {
  public:
    NormalFormStep(bool compose, bool compatible) : compose_(compose), compatible_(compatible) {}

    std::string Apply(std::string_view text, size_t) const override {
        if (IsNormal(text)) return std::string(text);
        std::vector<Point> points;
        points.reserve(text.size());
        for (size_t at = 0; at < text.size(); at += Length(text, at)) {
            Decompose(static_cast<Point>(PointAt(text, at)), points);
        }
        Order(points);
        auto count = static_cast<utf8proc_ssize_t>(points.size());
        if (compose_) {
            count = utf8proc_normalize_utf32(
                points.data(), count,
                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        }
        WEFT_CHECK(count >= 0);
        std::string normal;
        normal.reserve(text.size());
        for (utf8proc_ssize_t i = 0; i < count; ++i) {
            AppendPoint(static_cast<uint32_t>(points[static_cast<size_t>(i)]), normal);
        }
        return normal;
    }

  private:
    // Nothing below U+0300 composes; nothing below U+00A0 decomposes either.
    bool IsNormal(std::string_view text) const {
        const uint8_t least = compose_ && !compatible_ ? 0xCC : 0xC2;
        return std::all_of(text.begin(), text.end(), [&](char c) {
            const auto byte = static_cast<uint8_t>(c);
            return byte < 0xC0 ? byte < 0x80 || least == 0xCC : byte < least;
        });
    }

    void Decompose(Point point, std::vector<Point>& points) const {
        const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                            (compatible_ ? UTF8PROC_COMPAT : 0));
        Point parts[32];  // the longest decomposition has 18
        int bound = 0;
        const auto count = utf8proc_decompose_char(point, parts, std::size(parts), options, &bound);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
            points.push_back(point);  // not a Unicode code point
            return;
        }
        points.insert(points.end(), parts, parts + count);
    }

    // Sorts runs of marks by combining class. (utf8proc's own sort takes quadratic time.)
    static void Order(std::vector<Point>& points) {
        const auto rank = [](Point point) { return utf8proc_get_property(point)->combining_class; };
        for (size_t begin = 0; begin < points.size();) {
            size_t end = begin;
            while (end < points.size() && rank(points[end]) != 0) ++end;
            const auto from = points.begin() + static_cast<ptrdiff_t>(begin);
            const auto to = points.begin() + static_cast<ptrdiff_t>(end);
            if (end > begin + 1) {
                std::stable_sort(from, to, [&](Point a, Point b) { return rank(a) < rank(b); });
            }
            begin = end + 1;
        }
    }

    bool compose_;
    bool compatible_;
};

class LowercaseStep : public NormalizeStep {
  public:
    std::string Apply(std::string_view text, size_t) const override {
        std::string lower;
        lower.reserve(text.size());
        for (size_t at = 0; at < text.size(); at += Length(text, at)) {
            const uint32_t point = PointAt(text, at);
            if (point == 0x130) {  // the only code point whose lower case has two code points
                lower += "i\xCC\x87";
            } else {
                AppendPoint(static_cast<uint32_t>(utf8proc_tolower(static_cast<Point>(point))),
                            lower);
            }
        }
        return lower;
    }
};

class StripAccentsStep : public NormalizeStep {
  public:
    explicit StripAccentsStep(bool only_nonspacing) : only_nonspacing_(only_nonspacing) {}
    std::string Apply(std::string_view text, size_t) const override {
        std::string bare;
        for (size_t at = 0; at < text.size();) {
            const size_t length = Length(text, at);
            const uint32_t point = PointAt(text, at);
            const bool mark =
                only_nonspacing_ ? CategoryOf(point) == UTF8PROC_CATEGORY_MN : IsMarkPoint(point);
            if (!mark) bare += text.substr(at, length);
            at += length;
        }
        return bare;
    }

  private:
    bool only_nonspacing_;
};

class CleanTextStep : public NormalizeStep {
  public:
    std::string Apply(std::string_view text, size_t) const override {
        std::string clean;
        clean.reserve(text.size());
        for (size_t at = 0; at < text.size();) {
            const size_t length = Length(text, at);
            const uint32_t point = PointAt(text, at);
            const bool line = point == '\t' || point == '\n' || point == '\r';
            if (line || (IsSpacePoint(point) && !IsRemoved(point))) {
                clean += ' ';
            } else if (!IsRemoved(point)) {
                clean += text.substr(at, length);
            }
            at += length;
        }
        return clean;
    }

  private:
    static bool IsRemoved(uint32_t point) {
        const utf8proc_category_t category = CategoryOf(point);
        return point == 0xFFFD || category == UTF8PROC_CATEGORY_CC ||
               category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
    }
};

class SpaceChineseStep : public NormalizeStep {
  public:
    std::string Apply(std::string_view text, size_t most) const override {
        std::string spaced;
        spaced.reserve(text.size());
        for (size_t at = 0; at < text.size();) {
            const size_t length = Length(text, at);
            const bool apart =
                IsChinese(PointAt(text, at)) && spaced.size() + 2 + text.size() - at <= most;
            if (apart) spaced += ' ';
            spaced += text.substr(at, length);
            if (apart) spaced += ' ';
            at += length;
        }
        return spaced;
    }

  private:
    // The blocks of BERT's own tokenizer.
    static bool IsChinese(uint32_t point) {
        static constexpr uint32_t kBlocks[][2] = {
            {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
            {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
        };
        return std::any_of(std::begin(kBlocks), std::end(kBlocks), [point](const auto& block) {
            return point >= block[0] && point <= block[1];
        });
    }
};

class PrependStep : public NormalizeStep {
  public:
    explicit PrependStep(std::string words) : words_(std::move(words)) {}
    std::string Apply(std::string_view text, size_t most) const override {
        if (text.empty() || words_.size() + text.size() > most) return std::string(text);
        return words_ + std::string(text);
    }

  private:
    std::string words_;
};

class ReplaceStep : public NormalizeStep {
  public:
    ReplaceStep(Regex pattern, std::string words)
        : pattern_(std::move(pattern)), words_(std::move(words)) {}

    std::string Apply(std::string_view text, size_t most) const override {
        RegexRun run(text.size());
        std::string replaced;
        size_t done = 0;
        RegexRun::Range found{};
        for (size_t at = 0; at <= text.size() && run.Next(pattern_, text, at, found);) {
            if (replaced.size() + words_.size() + text.size() - done > most) break;
            replaced += text.substr(done, found.begin - done);
            replaced += words_;
            done = at = found.end;
            if (found.begin < found.end) continue;
            at += at < text.size() ? Length(text, at) : 1;
        }
        replaced += text.substr(done);
        return replaced;
    }

  private:
    Regex pattern_;
    std::string words_;
};

class StripSpacesStep : public NormalizeStep {
  public:
    StripSpacesStep(bool left, bool right) : left_(left), right_(right) {}
    std::string Apply(std::string_view text, size_t) const override {
        if (right_) text = text.substr(0, SpacesBegin(text, text.size()));
        if (left_) text = text.substr(SpacesEnd(text, 0));
        return std::string(text);
    }

  private:
    bool left_;
    bool right_;
};

class PrecompiledStep : public NormalizeStep {
  public:
    explicit PrecompiledStep(Charsmap charsmap) : charsmap_(std::move(charsmap)) {}

    std::string Apply(std::string_view text, size_t most) const override {
        std::string normal;
        normal.reserve(text.size());
        for (size_t at = 0; at < text.size();) {
            const size_t end = GraphemeEnd(text, at);
            const size_t here = most - std::min(most, text.size() - at);
            const bool whole =
                end - at < kWholeBytes && Put(text.substr(at, end - at), here, normal);
            for (size_t i = at; !whole && i < end;) {
                const size_t length = Length(text, i);
                if (!Put(text.substr(i, length), here, normal)) normal += text.substr(i, length);
                i += length;
            }
            at = end;
        }
        return normal;
    }

  private:
    static constexpr size_t kWholeBytes = 6;  // longer graphemes are processed by code point

    static size_t GraphemeEnd(std::string_view text, size_t at) {
        Point last = static_cast<Point>(PointAt(text, at));
        utf8proc_int32_t state = 0;
        for (at += Length(text, at); at < text.size(); at += Length(text, at)) {
            const auto next = static_cast<Point>(PointAt(text, at));
            if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
            last = next;
        }
        return at;
    }

    bool Put(std::string_view chunk, size_t most, std::string& normal) const {
        const Charsmap::Rule rule = charsmap_.Shortest(chunk);
        if (rule.size == 0 || normal.size() + rule.with.size() > most) return false;
        normal += rule.with;
        return true;
    }

    Charsmap charsmap_;
};

class SentencePieceStep : public NormalizeStep {
  public:
    explicit SentencePieceStep(SentencePieceRules rules) : rules_(std::move(rules)) {}

    std::string Apply(std::string_view text, size_t most) const override {
        const std::string_view space = rules_.escape_spaces ? kSpaceMark : " ";
        std::string normal;
        normal.reserve(text.size() + text.size() / 4);
        size_t at = 0;
        Piece piece;
        if (rules_.remove_extra_spaces) {  // leading spaces
            while (at < text.size() && (piece = Next(text, at, most)).text == " ") at += piece.size;
        }
        if (at == text.size()) return normal;
        if (rules_.add_dummy_prefix && !rules_.suffix) normal += space;
        bool after_space = rules_.remove_extra_spaces;
        while (at < text.size()) {
            piece = Next(text, at, most - std::min(most, normal.size()));
            at += piece.size;
            std::string_view words = piece.text;
            while (after_space && words.starts_with(' ')) words.remove_prefix(1);
            for (const char c : words) c == ' ' ? normal += space : normal += c;
            if (!words.empty()) after_space = rules_.remove_extra_spaces && words.back() == ' ';
        }
        if (rules_.remove_extra_spaces) {
            while (normal.ends_with(space)) normal.erase(normal.size() - space.size());
        }
        if (rules_.add_dummy_prefix && rules_.suffix) normal += space;
        return normal;
    }

  private:
    struct Piece {
        std::string_view text;  // replacement
        size_t size = 0;        // bytes of the text that it replaces
    };

    // The next user-defined token, rule (with a result of at most `most` bytes) or code point.
    Piece Next(std::string_view text, size_t at, size_t most) const {
        if (rules_.kept != nullptr) {
            const size_t kept = rules_.kept->LengthAt(text, at);
            if (kept > 0) return {text.substr(at, kept), kept};
        }
        const Charsmap::Rule rule = rules_.charsmap.Longest(text.substr(at));
        if (rule.size > 0 && rule.with.size() <= most) return {rule.with, rule.size};
        const size_t length = Length(text, at);
        return {text.substr(at, length), length};
    }

    SentencePieceRules rules_;
};

}  // namespace

std::string Normalizer::Apply(std::string_view text) const {
    constexpr size_t kGrowth = 32, kSpare = 1 << 16;
    const size_t most = kGrowth * text.size() + kSpare;
    std::string normal(text);
    for (const auto& step : steps_) normal = step->Apply(normal, most);
    return normal;
}

std::unique_ptr<const NormalizeStep> NormalForm(bool compose, bool compatible) {
    return std::make_unique<NormalFormStep>(compose, compatible);
}

std::unique_ptr<const NormalizeStep> Lowercase() {
    return std::make_unique<LowercaseStep>();
}

std::unique_ptr<const NormalizeStep> StripAccents(bool only_nonspacing) {
    return std::make_unique<StripAccentsStep>(only_nonspacing);
}

std::unique_ptr<const NormalizeStep> CleanText() {
    return std::make_unique<CleanTextStep>();
}

std::unique_ptr<const NormalizeStep> SpaceChinese() {
    return std::make_unique<SpaceChineseStep>();
}

std::unique_ptr<const NormalizeStep> Prepend(std::string words) {
    return std::make_unique<PrependStep>(std::move(words));
}

std::unique_ptr<const NormalizeStep> Replace(Regex pattern, std::string words) {
    return std::make_unique<ReplaceStep>(std::move(pattern), std::move(words));
}

std::unique_ptr<const NormalizeStep> StripSpaces(bool left, bool right) {
    return std::make_unique<StripSpacesStep>(left, right);
}

std::unique_ptr<const NormalizeStep> Precompiled(Charsmap charsmap) {
    return std::make_unique<PrecompiledStep>(std::move(charsmap));
}

std::unique_ptr<const NormalizeStep> SentencePiece(SentencePieceRules rules) {
    return std::make_unique<SentencePieceStep>(std::move(rules));
}

}  // namespace weft::tokenizer
