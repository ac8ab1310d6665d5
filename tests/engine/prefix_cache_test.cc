// The prefix cache against a list of all inserted texts: a hit belongs to the tenant and adapter,
// names the page that holds it, and is as long as possible.
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

constexpr PrefixSpace kSpaces[] = {{"a", 0}, {"a", 1}, {"b", 0}, {"", 0}};

// A sequence as the scheduler keeps it: all pages from the first on.
struct Reader {
    PrefixSpace space;
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
        Reader reader{kSpaces[Below(std::size(kSpaces))], text, {}};
        const auto size = static_cast<int64_t>(text.size());
        const int64_t most = size - 1;
        cache_.Extend(reader.space, text, 0, most, reader.pages);
        const auto whole = static_cast<int64_t>(reader.pages.size());
        const PrefixCache::Part part = cache_.FindPart(reader.space, text, whole, most);
        for (int64_t i = 0; i < whole; ++i) CheckPage(reader, i, reader.pages[Index(i)], kPage);
        if (part.tokens > 0) CheckPage(reader, whole, part.page, part.tokens);
        if (exact_) {
            EXPECT_EQ(whole * kPage + part.tokens, std::min(most, Longest(reader)));
        }
        Write(reader, size);
    }
    // Nothing was evicted so far, so all inserted texts are found.
    void ExpectAll(bool exact) { exact_ = exact; }
    void Clear() {
        cache_.Clear();
        EXPECT_EQ(pool_.free(), pool_.size());
        EXPECT_EQ(cache_.spaces(), 0u);
    }

  private:
    uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    static size_t Index(int64_t i) { return static_cast<size_t>(i); }

    // `page` holds the first `count` tokens of page `index` of the text, and the pages before it
    // are right.
    void CheckPage(const Reader& reader, int64_t index, int32_t page, int64_t count) {
        EXPECT_EQ(held_[page].space, reader.space) << "another's page";
        const Text &text = reader.text, &held = held_[page].text;
        const int64_t end = index * kPage + count;
        ASSERT_EQ((static_cast<int64_t>(held.size()) - 1) / kPage, index) << "another place";
        EXPECT_GE(Common(held, text), end) << "page " << page << " holds another text";
    }
    int64_t Longest(const Reader& reader) const {
        int64_t longest = 0;
        for (const Reader& told : told_) {
            if (told.space == reader.space) {
                longest = std::max(longest, Common(told.text, reader.text));
            }
        }
        return longest;
    }
    void Write(Reader& reader, int64_t size) {
        while (static_cast<int64_t>(reader.pages.size()) * kPage < size) {
            cache_.Evict(1);
            ASSERT_GT(pool_.free(), 0);
            const int32_t page = pool_.Take();
            reader.pages.push_back(page);
            const auto end =
                std::min<int64_t>(static_cast<int64_t>(reader.pages.size()) * kPage, size);
            held_[page] = {reader.space, Text(reader.text.begin(), reader.text.begin() + end), {}};
        }
        const int64_t whole = size / kPage;
        cache_.Insert(reader.space, reader.text, std::span(reader.pages).first(Index(whole)));
        if (whole * kPage < size) {
            // As a writing sequence does: first a part of the page.
            cache_.InsertPart(reader.space, First(reader.text, whole * kPage + 1),
                              reader.pages.back());
            cache_.InsertPart(reader.space, reader.text, reader.pages.back());
        }
        told_.push_back(reader);
        for (const int32_t page : reader.pages) pool_.Release(page);
        EXPECT_LE(cache_.spaces(), std::size(kSpaces));
    }

    std::mt19937 random_;
    PagePool pool_;
    PrefixCache cache_;
    std::map<int32_t, Reader> held_;  // the text up to the last written slot of a page
    std::vector<Reader> told_;
    bool exact_ = true;
};

TEST(PrefixCache, KnowsTheLongestBeginning) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        Model model(seed, 4000);
        for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) model.Turn();
        model.Clear();
    }
}

TEST(PrefixCache, WithFewPagesContentsAreRight) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        Model model(seed, 9);
        model.ExpectAll(false);
        for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) model.Turn();
        model.Clear();
    }
}

// Tenants change; a tenant's record is removed with its last page.
TEST(PrefixCache, ManyTenantsLeaveNothingBehind) {
    PagePool pool(8);
    PrefixCache cache(pool, kPage);
    const Text text(kPage + 1, 7);
    for (int i = 0; i < 1000; ++i) {
        const std::string tenant = "tenant " + std::to_string(i);
        std::vector<int32_t> pages;
        cache.Extend({tenant, 0}, text, 0, kPage + 1, pages);
        EXPECT_TRUE(pages.empty());
        EXPECT_EQ(cache.FindPart({tenant, 0}, text, 0, kPage + 1).tokens, 0);
        cache.Evict(2);
        pages = {pool.Take(), pool.Take()};
        cache.Insert({tenant, 0}, text, std::span(pages).first(1));
        cache.InsertPart({tenant, 0}, text, pages[1]);
        for (const int32_t page : pages) pool.Release(page);
        EXPECT_LE(cache.spaces(), 8u);
    }
}

// With recurrent layers a text is found up to its last state slot. Slots are freed with their
// pages; the least recently used one is freed first.
TEST(PrefixCache, KnowsATextWhereItsStateIs) {
    PagePool pool(8), slots(3);
    PrefixCache cache(pool, kPage, &slots);
    const PrefixSpace space{"a", 0};
    Text text(5 * kPage);
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
    std::vector<int32_t> pages;
    for (int i = 0; i < 4; ++i) pages.push_back(pool.Take());
    cache.Insert(space, First(text, 4 * kPage), pages);
    EXPECT_EQ(cache.KnownPages(space, text, 5 * kPage), 4);
    std::vector<int32_t> found;
    EXPECT_EQ(cache.ExtendToState(space, text, 0, 5 * kPage, found), -1);
    EXPECT_TRUE(found.empty());
    const auto store = [&](int64_t count) {
        const int32_t slot = slots.Take();
        cache.InsertState(space, First(text, count * kPage), slot);
        slots.Release(slot);
        return slot;
    };
    const int32_t first = store(1), third = store(3);
    EXPECT_EQ(cache.states(), 2);
    EXPECT_EQ(cache.ExtendToState(space, text, 0, 5 * kPage, found), third);
    EXPECT_EQ(found, (std::vector<int32_t>{pages[0], pages[1], pages[2]}));
    EXPECT_EQ(cache.ExtendToState(space, text, 0, 3 * kPage - 1, found), first);
    EXPECT_EQ(cache.ExtendToState(space, text, 3, 5 * kPage, found), -1);
    store(5);  // not known
    store(3);  // has one
    EXPECT_EQ(slots.free(), 1);
    cache.RemoveState(space, First(text, 3 * kPage));  // held
    EXPECT_EQ(cache.states(), 2);
    slots.Release(third);
    EXPECT_TRUE(cache.EvictState());  // the first is held
    EXPECT_FALSE(cache.EvictState());
    EXPECT_EQ(cache.states(), 1);
    slots.Release(first);
    for (const int32_t page : pages) pool.Release(page);
    for (const int32_t page : found) pool.Release(page);
    cache.Evict(8);
    EXPECT_EQ(cache.states(), 0);
    EXPECT_EQ(slots.free(), 3);
}

}  // namespace
}  // namespace weft::engine
