// The places in a grammar that a text can have reached, as sets of stacks: one set per level.
//
// A head is a current grammar state and a stack: the states at which calling rules continue when
// their calls end. Stacks share their lower parts: a frame is one state and the frame below it, and
// equal stacks are the same frame. Level n has the heads after n bytes. Step makes the next level
// and drops later levels, so a walk over a tree keeps one level per depth.
//
// Limits: more than kMostHeads heads on a level set overflow(); stacks deeper than kMostDepth are
// not followed. Thread: one caller. Allocates only when it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/grammar.h"

namespace weft::grammar {

class Stacks {
  public:
    static constexpr size_t kMostHeads = 1000;
    static constexpr uint32_t kMostDepth = 500;
    static constexpr uint32_t kBottom = 0;  // frame of an empty stack

    struct Head {
        uint32_t state;
        uint32_t frame;
        bool operator==(const Head&) const = default;
    };
    struct Frame {
        uint32_t to;     // state at which the frame below continues
        uint32_t below;  // lower-numbered frame
        uint32_t depth;
    };

    explicit Stacks(const Grammar& grammar);

    // Resets to one empty level over `frames` (distinct; the first is the bottom).
    void Load(std::span<const Frame> frames);
    // Add a head to the only level. AddAlone adds just the head; Add also adds all heads that it
    // reaches without bytes.
    void AddAlone(Head head);
    void Add(Head head);
    // Adds the heads after the rule of `frame` ends.
    void AddAfter(uint32_t frame);

    // Makes level + 1 from `level` and drops later levels. Returns false if no head of the new
    // level has byte edges, and the new level is not at the bottom.
    bool Step(size_t level, uint8_t byte);
    // As Step, with `head` as the level's only head.
    bool StepAlone(size_t level, Head head, uint8_t byte);

    std::span<const Head> heads(size_t level) const {
        const size_t begin = levels_[level].heads;
        const size_t end = level + 1 < levels_.size() ? levels_[level + 1].heads : heads_.size();
        return std::span(heads_).subspan(begin, end - begin);
    }
    // Whether a head ended the rule in which the walk began, so that its stack is empty.
    bool at_bottom(size_t level) const { return levels_[level].at_bottom; }
    bool live(size_t level) const { return levels_[level].live; }  // a head has byte edges
    std::span<const Frame> frames() const { return frames_; }
    const Grammar& grammar() const { return grammar_; }

    bool overflow() const { return overflow_; }
    uint64_t steps() const { return steps_; }  // a measure of time since construction

  private:
    struct Level {
        size_t heads;   // index of its first head
        size_t frames;  // number of frames before it
        bool at_bottom;
        bool live;
    };
    size_t OpenLevel(size_t level);
    void PutNext(Head head, uint8_t byte);
    void Put(uint32_t state, uint32_t frame);
    bool Seen(Head head);
    void Close(size_t at);
    uint32_t Push(uint32_t to, uint32_t below);
    size_t SlotOf(uint32_t to, uint32_t below) const;
    void ForgetFrames(size_t count);
    void Rehash(size_t slots);

    const Grammar& grammar_;
    std::vector<Level> levels_;
    std::vector<Head> heads_;  // of all levels
    std::vector<Frame> frames_;
    std::vector<uint32_t> slots_;  // hash table of frames: open addressing, 0 is free
    // Hash table of the heads, for levels with many heads.
    struct Mark {
        uint64_t round;
        Head head;
    };
    std::vector<Mark> marks_;
    uint64_t round_ = 0;
    bool marked_ = false;
    bool overflow_ = false;
    uint64_t steps_ = 0;
};

}  // namespace weft::grammar
