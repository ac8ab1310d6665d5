// The prefix cache beside a list of all texts that it was told: what it says to know is known, by
// the page that holds it, and it is as much as there is.
#include "engine/batch/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace weft::engine {
namespace {

constexpr int64_t kPage = 4;
using Text = std::vector<int32_t>;

std::span<const int32_t> First(const Text& text, int64_t count) {
    return std::span(text).first(static_cast<size_t>(count));
}

int64_t Common(const Text& a, const Text& b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

// A sequence as the scheduler would keep it: all pages from the beginning on.
struct Reader {
    Text text;
    std::vector<int32_t> pages;
};

class Model {
  public:
    explicit Model(uint32_t seed, int64_t pages)
        : random_(seed), pool_(pages), cache_(pool_, kPage) {}

    void Turn() {
        Text text(1 + Below(18));
        for (int32_t& token : text) token = static_cast<int32_t>(Below(2));
        Reader reader{text, {}};
        const auto size = static_cast<int64_t>(text.size());
        const int64_t most = size - 1;
        cache_.Extend(0, text, 0, most, reader.pages);
        const auto whole = static_cast<int64_t>(reader.pages.size());
        const PrefixCache::Part part = cache_.FindPart(0, text, whole, most);
        for (int64_t i = 0; i < whole; ++i) CheckPage(text, i, reader.pages[Index(i)], kPage);
        if (part.tokens > 0) CheckPage(text, whole, part.page, part.tokens);
        if (exact_) {
            EXPECT_EQ(whole * kPage + part.tokens, std::min(most, Longest(text)));
        }
        Write(reader, size);
    }
    // Nothing was given up so far: all that was told is known.
    void ExpectAll(bool exact) { exact_ = exact; }
    void Clear() {
        cache_.Clear();
        EXPECT_EQ(pool_.free(), pool_.size());
    }

  private:
    uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    static size_t Index(int64_t i) { return static_cast<size_t>(i); }

    // The first `count` tokens of page `index` of the text are in `page`, behind the right others.
    void CheckPage(const Text& text, int64_t index, int32_t page, int64_t count) {
        const Text& held = held_[page];
        const int64_t end = index * kPage + count;
        ASSERT_EQ((static_cast<int64_t>(held.size()) - 1) / kPage, index) << "another place";
        EXPECT_GE(Common(held, text), end) << "page " << page << " holds another text";
    }
    int64_t Longest(const Text& text) const {
        int64_t longest = 0;
        for (const Text& told : told_) longest = std::max(longest, Common(told, text));
        return longest;
    }
    void Write(Reader& reader, int64_t size) {
        while (static_cast<int64_t>(reader.pages.size()) * kPage < size) {
            cache_.Evict(1);
            ASSERT_GT(pool_.free(), 0);
            const int32_t page = pool_.Take();
            reader.pages.push_back(page);
            const auto end = std::min<int64_t>(static_cast<int64_t>(reader.pages.size()) * kPage,
                                               size);
            held_[page].assign(reader.text.begin(), reader.text.begin() + end);
        }
        const int64_t whole = size / kPage;
        cache_.Insert(0, reader.text, std::span(reader.pages).first(Index(whole)));
        if (whole * kPage < size) {
            // As its writer goes: first a part of the part.
            cache_.InsertPart(0, First(reader.text, whole * kPage + 1), reader.pages.back());
            cache_.InsertPart(0, reader.text, reader.pages.back());
        }
        told_.push_back(reader.text);
        for (const int32_t page : reader.pages) pool_.LetGo(page);
    }

    std::mt19937 random_;
    PagePool pool_;
    PrefixCache cache_;
    std::map<int32_t, Text> held_;  // the text up to the last slot of a page that is written
    std::vector<Text> told_;
    bool exact_ = true;
};

TEST(PrefixCache, KnowsTheLongestBeginning) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        Model model(seed, 4000);
        for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) model.Turn();
        model.Clear();
    }
}

TEST(PrefixCache, WithFewPagesWhatItKnowsIsRight) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        Model model(seed, 9);
        model.ExpectAll(false);
        for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) model.Turn();
        model.Clear();
    }
}

}  // namespace
}  // namespace weft::engine
