// Predicts which experts the next choice of a step will be, so that they can be read ahead
// (expert_store.h): applies the next choice's router to the rows that enter the current one. A
// layer changes its input little, so the next router sees almost these rows (Eliseev and Mazur,
// "Fast Inference of Mixture-of-Experts Language Models with Offloading", 2023).
//
// Thread: one caller.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/buffers.h"

namespace weft::backend {

class ExpertGuess {
  public:
    // Finds the routers of which the inputs are known: a matrix product after a norm. The Buffers
    // must have memory by the first call of Next.
    explicit ExpertGuess(const Buffers& buffers);

    // The choice that Next(ids) guesses; kNoValue: none.
    program::ValueId NextOf(program::ValueId ids) const;
    struct Guess {
        program::ValueId ids = program::kNoValue;
        std::span<const int32_t> experts;  // those first that most rows choose
    };
    // The rows of step slot `slot` that chose `ids` are in memory. The result is valid until the
    // next call.
    Guess Next(program::ValueId ids, int64_t rows, int slot);

  private:
    // A router: ids = route(hidden -> norm -> product).
    struct Router {
        program::ValueId ids = program::kNoValue;
        size_t product = 0, norm = 0, route = 0;  // ops
        program::ValueId hidden = program::kNoValue;
        bool hidden_stays = false;            // the choice's experts leave the rows in memory
        int64_t first_expert = 0, count = 0;  // experts of this rank
    };
    const Router* After(program::ValueId ids) const;
    Router FindRouter(size_t route) const;
    void Normalise(const Router& router, const float* hidden, float* out) const;
    void Choose(const Router& router, int64_t rows);

    const Buffers& buffers_;
    const program::Program& program_;
    std::vector<Router> routers_;  // by order of the Program
    std::vector<float> normed_, logits_, weights_;
    std::vector<int32_t> ids_, votes_, best_;
};

}  // namespace weft::backend
