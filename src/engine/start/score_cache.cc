#include "engine/start/score_cache.h"

#include <algorithm>

namespace weft::engine {
namespace {

constexpr int64_t kBlockTokens = 16;

int64_t Size(std::span<const int32_t> tokens) {
    return static_cast<int64_t>(tokens.size());
}

}  // namespace

ScoreCache::ScoreCache(int64_t tokens)
    : pool_(tokens / kBlockTokens),
      cache_(pool_, kBlockTokens),
      blocks_(static_cast<size_t>(pool_.size())) {}

// A free block; -1: all are in use.
int32_t ScoreCache::Take() {
    if (pool_.free() == 0) cache_.Evict(1);
    return pool_.free() == 0 ? -1 : pool_.Take();
}

// index: place of the block in its prompt.
void ScoreCache::Fill(int32_t block, int64_t index, int best,
                      std::span<const GeneratedToken> scores) {
    Block& to = blocks_[static_cast<size_t>(block)];
    to.best = best;
    to.scores.clear();
    const int64_t begin = index * kBlockTokens;
    const auto end = std::min(begin + kBlockTokens, static_cast<int64_t>(scores.size()) + 1);
    if (begin == 0) to.scores.emplace_back();
    for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) {
        to.scores.push_back(scores[static_cast<size_t>(i - 1)]);
    }
}

// Returns false if the block has fewer likeliest tokens than needed.
bool ScoreCache::Copy(int32_t block, int64_t begin, int64_t end, int best,
                      std::vector<GeneratedToken>& scores) const {
    const Block& from = blocks_[static_cast<size_t>(block)];
    if (from.best < best) return false;
    for (int64_t i = begin; i < end; ++i) {
        scores.push_back(from.scores[static_cast<size_t>(i)]);
        auto& likeliest = scores.back().best;
        likeliest.resize(std::min(likeliest.size(), static_cast<size_t>(std::max(best, 0))));
    }
    return true;
}

void ScoreCache::Find(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t have,
                      int best, std::vector<GeneratedToken>& scores) {
    int64_t index = have / kBlockTokens;
    found_.clear();
    cache_.Extend(space, tokens, index, Size(tokens), found_);
    bool all = true;
    for (const int32_t block : found_) {
        const int64_t begin = std::max<int64_t>(0, have - index * kBlockTokens);
        all = all && Copy(block, begin, kBlockTokens, best, scores);
        pool_.Release(block);
        ++index;
    }
    if (!all) return;
    const PrefixCache::Part part = cache_.FindPart(space, tokens, index, Size(tokens));
    const int64_t begin = std::max<int64_t>(0, have - index * kBlockTokens);
    if (part.tokens > begin) Copy(part.page, begin, part.tokens, best, scores);
}

void ScoreCache::Keep(const PrefixSpace& space, std::span<const int32_t> tokens, int best,
                      std::span<const GeneratedToken> scores) {
    ++changes_;
    const int64_t whole = Size(tokens) / kBlockTokens;
    found_.clear();
    cache_.Extend(space, tokens, 0, Size(tokens), found_);
    for (size_t i = 0; i < found_.size(); ++i) {
        const bool fewer = blocks_[static_cast<size_t>(found_[i])].best < best;
        if (fewer) Fill(found_[i], static_cast<int64_t>(i), best, scores);
    }
    int32_t block = 0;
    while (block >= 0 && std::ssize(found_) < whole) {
        block = Take();
        if (block < 0) break;
        Fill(block, std::ssize(found_), best, scores);
        found_.push_back(block);
    }
    cache_.Insert(space, tokens, found_);
    if (block >= 0 && whole * kBlockTokens < Size(tokens) && (block = Take()) >= 0) {
        Fill(block, whole, best, scores);
        cache_.InsertPart(space, tokens, block);
        pool_.Release(block);
    }
    for (const int32_t held : found_) pool_.Release(held);
}

}  // namespace weft::engine
