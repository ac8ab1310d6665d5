#include "grammar/matcher.h"

#include <algorithm>
#include <array>

#include "grammar/mask_cache.h"

namespace weft::grammar {
namespace {

constexpr uint64_t kMostSteps = Matcher::kMostMaskSteps;
constexpr uint64_t kMostWalkSteps = kMostSteps / 2;  // limit per place
// above this, caching the mask of a whole stack is worthwhile
constexpr uint64_t kManySteps = 20'000;
constexpr uint64_t kHardSteps = 200'000;  // if a mask takes more, all stacks are cached
constexpr size_t kManyHeads = 4;
constexpr size_t kWordsAStep = 16;  // words added per step when a token set is combined

// A borrowed machine, returned to the cache on destruction.
class Borrowed {
  public:
    explicit Borrowed(MaskCache& cache) : cache_(cache), stacks_(cache.Borrow()) {}
    ~Borrowed() { cache_.GiveBack(std::move(stacks_)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    Stacks& operator*() { return *stacks_; }
    Stacks* operator->() { return stacks_.get(); }

  private:
    MaskCache& cache_;
    std::unique_ptr<Stacks> stacks_;
};

// Walks the trie with the heads of a machine's first level.
class TokenWalk {
  public:
    // Adds tokens to `bits`. If `exits` is given, adds the nodes with children at which the stack
    // was at its bottom. Stops after `most_steps`.
    TokenWalk(const TokenTrie& trie, Stacks& stacks, uint64_t most_steps, std::span<uint32_t> bits,
              std::vector<uint32_t>* exits)
        : trie_(trie),
          stacks_(stacks),
          bits_(bits),
          exits_(exits),
          first_step_(stacks.steps()),
          most_steps_(most_steps) {}

    // The tokens below `root` whose remaining bytes can all follow.
    void Below(uint32_t root) { Below(root, 0); }

    uint64_t Steps() const { return stacks_.steps() - first_step_ + plain_steps_; }
    bool TooMuch() const { return stacks_.overflow() || Steps() > most_steps_; }

  private:
    void Add(std::span<const int32_t> tokens) {
        for (const int32_t id : tokens) bits_[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    }

    void Below(uint32_t root, size_t level) {
        const auto heads = stacks_.heads(level);
        if (heads.size() == 1 && stacks_.grammar().IsPlain(heads[0].state)) {
            return BelowPlain(root, level, heads[0]);
        }
        const auto nodes = trie_.nodes();
        for (uint32_t at = root + 1; at < nodes[root].end && !TooMuch(); at = nodes[at].end) {
            if (stacks_.Step(level, nodes[at].byte)) Visit(at, level + 1);
        }
    }

    void Visit(uint32_t at, size_t level) {
        Add(trie_.TokensAt(at));
        if (trie_.nodes()[at].end == at + 1) return;
        if (exits_ != nullptr && stacks_.at_bottom(level)) exits_->push_back(at);
        if (stacks_.live(level)) Below(at, level);
    }

    // As Below, for one head in a plain state. While all states are plain, follows them without the
    // machine.
    void BelowPlain(uint32_t root, size_t level, Stacks::Head head) {
        const Grammar& grammar = stacks_.grammar();
        const auto nodes = trie_.nodes();
        const size_t base = nodes[root].depth;
        std::array<uint32_t, TokenTrie::kMostTokenBytes + 1> states;
        states[0] = head.state;
        for (uint32_t at = root + 1; at < nodes[root].end;) {
            const TokenTrie::Node& node = nodes[at];
            const size_t depth = node.depth - base;
            const uint32_t before = states[depth - 1];
            const auto next = grammar.Next(before, node.byte);
            ++plain_steps_;
            if (next.size() == 1 && grammar.IsPlain(next[0])) {
                states[depth] = next[0];
                if (node.below > 0 && AllBelow(next[0], node)) {
                    Add(trie_.TokensFrom(at));
                    at = node.end;
                    continue;
                }
                Add(trie_.TokensAt(at));
                ++at;
                continue;
            }
            if (!next.empty()) {
                if (TooMuch()) return;
                const Stacks::Head alone = {before, head.frame};
                if (stacks_.StepAlone(level, alone, node.byte)) Visit(at, level + 1);
            }
            at = node.end;
        }
    }

    bool AllBelow(uint32_t state, const TokenTrie::Node& node) const {
        const TokenTrie::Subtree& subtree = trie_.Below(node);
        return stacks_.grammar().Runs(state, subtree.bytes, subtree.height);
    }

    const TokenTrie& trie_;
    Stacks& stacks_;
    std::span<uint32_t> bits_;
    std::vector<uint32_t>* exits_;
    const uint64_t first_step_, most_steps_;
    uint64_t plain_steps_ = 0;
};

constexpr Stacks::Frame kBottomFrame = {0, 0, 0};

// Masks of a matcher's heads, cached if possible. AddTo returns false for heads that are too
// ambiguous.
class HeadMask {
  public:
    HeadMask(MaskCache& cache, std::span<const Stacks::Frame> frames)
        : cache_(cache), frames_(frames) {}

    bool AddTo(Stacks::Head head, std::span<uint32_t> bits) {
        MaskCache::Key stack = {head.state};
        for (uint32_t at = head.frame; at != Stacks::kBottom; at = frames_[at].below) {
            stack.push_back(frames_[at].to);
        }
        if (stack.size() > 1) {
            if (const auto known = cache_.Find(stack)) return Add(*known, bits);
        }
        const auto place = Place(head.state);
        if (place == nullptr || !Add(*place, bits)) return false;
        if (place->exits.empty() || stack.size() == 1) return true;
        return AddExits(head.frame, *place, stack, bits);
    }

    uint64_t Steps() const { return kMostSteps - steps_left_; }
    // Whether this attempt cached places, so that a retry may succeed.
    bool Learned() const { return learned_; }

  private:
    bool Add(const PlaceMask& known, std::span<uint32_t> bits) {
        if (known.too_many) return false;
        known.tokens.AddTo(bits);
        return Spend(1 + known.tokens.size_bytes() / (4 * kWordsAStep));
    }
    bool Spend(uint64_t steps) {
        const bool enough = steps <= steps_left_;
        steps_left_ -= std::min(steps_left_, steps);
        return enough;
    }
    uint64_t MostWalkSteps() const { return std::min(steps_left_, kMostWalkSteps); }
    // Whether the walk exceeded its limit. This is cached if it would exceed the limit of any mask.
    bool TooMuch(const TokenWalk& walk, const Stacks& stacks, const MaskCache::Key& key) {
        if (Spend(walk.Steps()) && !walk.TooMuch()) return false;
        if (!stacks.overflow() && walk.Steps() <= kMostWalkSteps) return true;
        auto none = std::make_shared<PlaceMask>();
        none->too_many = true;
        cache_.Keep(key, std::move(none));
        return true;
    }

    std::shared_ptr<const PlaceMask> Place(uint32_t state) {
        if (auto known = cache_.Find({state})) return known;
        Borrowed stacks(cache_);
        stacks->Load({&kBottomFrame, 1});
        stacks->AddAlone({state, Stacks::kBottom});
        auto mask = std::make_shared<PlaceMask>();
        std::vector<uint32_t> found(cache_.trie().mask_words(), 0);
        TokenWalk walk(cache_.trie(), *stacks, MostWalkSteps(), found, &mask->exits);
        walk.Below(0);
        if (TooMuch(walk, *stacks, {state})) return nullptr;
        mask->tokens = TokenSet(std::move(found));
        mask->exits.shrink_to_fit();
        cache_.Keep({state}, mask);
        learned_ = true;
        return mask;
    }

    // Adds the tokens that continue after the rule above `frame` ends inside a token.
    bool AddExits(uint32_t frame, const PlaceMask& place, const MaskCache::Key& stack,
                  std::span<uint32_t> bits) {
        Borrowed stacks(cache_);
        stacks->Load(frames_);
        stacks->AddAfter(frame);
        std::vector<uint32_t> found(cache_.trie().mask_words(), 0);
        TokenWalk walk(cache_.trie(), *stacks, MostWalkSteps(), found, nullptr);
        for (const uint32_t exit : place.exits) walk.Below(exit);
        if (TooMuch(walk, *stacks, stack)) return false;
        const bool kept = walk.Steps() >= kManySteps || Steps() >= kHardSteps;
        if (kept) place.tokens.AddTo(found);
        for (size_t word = 0; word < found.size(); ++word) bits[word] |= found[word];
        if (!kept) return Spend(2 * found.size() / kWordsAStep);
        auto mask = std::make_shared<PlaceMask>();
        mask->tokens = TokenSet(std::move(found));
        cache_.Keep(stack, std::move(mask));
        learned_ = true;
        return true;
    }

    MaskCache& cache_;
    std::span<const Stacks::Frame> frames_;
    uint64_t steps_left_ = kMostSteps;  // for all heads together
    bool learned_ = false;
};

}  // namespace

Result<Matcher> Matcher::Make(GrammarPtr grammar, std::shared_ptr<const TokenTrie> trie) {
    Matcher matcher(std::make_shared<MaskCache>(std::move(grammar), std::move(trie)));
    Borrowed stacks(*matcher.cache_);
    stacks->Load({&kBottomFrame, 1});
    stacks->Add({matcher.cache_->grammar().start(), Stacks::kBottom});
    if (stacks->overflow()) return matcher.TooAmbiguous();
    matcher.Take(*stacks, 0);
    return matcher;
}

size_t Matcher::size_bytes() const {
    return cache_->grammar().size_bytes() + cache_->size_bytes();
}

// Keeps the heads with bytes and the frames below them.
void Matcher::Take(const Stacks& stacks, size_t level) {
    const auto frames = stacks.frames();
    std::vector<uint32_t> number(frames.size(), 0);  // first 1: needed; then the new number
    heads_.clear();
    for (const Stacks::Head& head : stacks.heads(level)) {
        if (!stacks.grammar().HasBytes(head.state)) continue;
        heads_.push_back(head);
        for (uint32_t at = head.frame; at != 0 && number[at] == 0; at = frames[at].below) {
            number[at] = 1;
        }
    }
    frames_.assign(1, kBottomFrame);
    for (size_t at = 1; at < frames.size(); ++at) {
        if (number[at] == 0) continue;
        number[at] = static_cast<uint32_t>(frames_.size());
        frames_.push_back({frames[at].to, number[frames[at].below], frames[at].depth});
    }
    for (Stacks::Head& head : heads_) head.frame = number[head.frame];
    can_end_ = stacks.at_bottom(level);
    live_ = !heads_.empty();
}

Error Matcher::TooAmbiguous() const {
    return MakeError(ErrorCode::kUnsupported,
                     "grammar: too ambiguous: the text so far can be parsed in more than {} ways, "
                     "or a mask takes more than {} steps; make the grammar less ambiguous",
                     Stacks::kMostHeads, kMostSteps);
}

std::vector<uint32_t> Matcher::WholeKey() const {
    MaskCache::Key key = {0, static_cast<uint32_t>(heads_.size())};  // 0 is not a state
    for (const Stacks::Head& head : heads_) key.insert(key.end(), {head.state, head.frame});
    for (const Stacks::Frame& frame : frames_) key.insert(key.end(), {frame.to, frame.below});
    return key;
}

Error Matcher::NoToken() const {
    std::string bytes;
    for (int byte = 0; byte < 256 && bytes.size() < 60; ++byte) {
        for (const Stacks::Head& head : heads_) {
            if (cache_->grammar().Next(head.state, static_cast<uint8_t>(byte)).empty()) continue;
            bytes += fmt::format("{}{:02X}", bytes.empty() ? "" : " ", byte);
            break;
        }
    }
    return MakeError(ErrorCode::kUnsupported,
                     "grammar: no token of the vocabulary can follow; the grammar requires one "
                     "that begins with a byte of {} (hex)",
                     bytes.empty() ? "none" : bytes);
}

Status Matcher::Allowed(std::span<uint32_t> bits, uint64_t* steps) const {
    const TokenTrie& trie = cache_->trie();
    WEFT_CHECK(bits.size() >= trie.mask_words());
    std::fill(bits.begin(), bits.end(), 0);
    if (can_end_) {
        for (const int32_t id : trie.ends()) bits[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    }
    if (ended_) return {};
    // With many heads, exceeding the limit for all of them together is cached too, but only if a
    // retry would find no more cached places.
    MaskCache::Key whole;
    if (heads_.size() >= kManyHeads) whole = WholeKey();
    if (!whole.empty() && cache_->Find(whole) != nullptr) return TooAmbiguous();
    HeadMask mask(*cache_, frames_);
    const bool good = std::ranges::all_of(
        heads_, [&](const Stacks::Head& head) { return mask.AddTo(head, bits); });
    if (steps != nullptr) *steps += mask.Steps();
    if (!good && !whole.empty() && !mask.Learned())
        cache_->Keep(whole, std::make_shared<PlaceMask>());
    if (!good) return TooAmbiguous();
    if (can_end_) return {};
    for (const uint32_t word : bits) {
        if (word != 0) return {};
    }
    return NoToken();
}

Status Matcher::Accept(int32_t token, uint64_t* steps) {
    const TokenTrie& trie = cache_->trie();
    if (trie.IsEnd(token)) {
        if (!can_end_) {
            return MakeError(ErrorCode::kUsage,
                             "grammar: token {} ends the text, but the grammar requires more",
                             token);
        }
        ended_ = true;
        return {};
    }
    const std::string_view bytes = trie.Bytes(token);
    if (ended_ || bytes.empty()) {
        return MakeError(ErrorCode::kUsage, "grammar: token {} is not allowed here: {}", token,
                         ended_ ? "the text has ended" : "it has no text");
    }
    Borrowed stacks(*cache_);
    const uint64_t before = stacks->steps();
    stacks->Load(frames_);
    for (const Stacks::Head& head : heads_) stacks->AddAlone(head);
    for (size_t at = 0; at < bytes.size(); ++at) {
        if (stacks->Step(at, static_cast<uint8_t>(bytes[at]))) continue;
        if (stacks->overflow()) return TooAmbiguous();
        return MakeError(ErrorCode::kUsage,
                         "grammar: token {} is not allowed here: its byte {} (0x{:02x}) does not "
                         "match the grammar",
                         token, at, static_cast<uint8_t>(bytes[at]));
    }
    if (stacks->overflow()) return TooAmbiguous();
    if (steps != nullptr) *steps += stacks->steps() - before;
    Take(*stacks, bytes.size());
    return {};
}

Result<bool> Matches(const Grammar& grammar, std::string_view text) {
    Stacks stacks(grammar);
    stacks.Load({&kBottomFrame, 1});
    stacks.Add({grammar.start(), Stacks::kBottom});
    for (size_t at = 0; at < text.size(); ++at) {
        const bool alive = stacks.Step(at, static_cast<uint8_t>(text[at]));
        if (stacks.overflow()) {
            return MakeError(
                ErrorCode::kUnsupported,
                "grammar: too ambiguous: more than {} ways to parse {} bytes of a text",
                Stacks::kMostHeads, at + 1);
        }
        if (!alive) return false;
    }
    return stacks.at_bottom(text.size());
}

}  // namespace weft::grammar
