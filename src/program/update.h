// Ops of an update: the work between the backward pass of one batch and the forward pass of the
// next.
//
// Gradients are summed over the ranks with different data, and their squares are added up. Then
// each rank updates its own part of each unit (program/zero.h) with its optimizer state
// (Storage::kOptimizer), and sends the new weights to the ranks that read them. train/update/
// appends these ops to the chunks of a training Program (model_chunk.h).
//
// Operands are vectors: a rank's own part of a unit's gradients and weights, and the optimizer
// state for it. `weights` are float32; if the forward and backward pass read a narrower type,
// `copy` has the weights rounded to that type. Operands with += are read and written. The step
// provides the learning rate, the update number (from 1 on) and the factor for gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "program/op_row.h"
#include "tensor/update_runs.h"

namespace weft::program {

using weft::ElementRange;
using weft::FactoredRun;
using weft::FactoredTensor;
using weft::UpdateMatrix;
using weft::UpdateRun;

struct SumOver {  // x becomes its sum over the group; narrow types round once
    static constexpr OpRow kRow{"sum_over", "-> x[..]:f64+=", Pass::kUpdate, Trait::kAllReduce};
    Group group = Group::kWorld;
    void Show(auto& show) const { show("group", group); }
};
// Adds the squares of x in the ranges. sum: [1] in float64, or [2] in float32, whose two numbers
// are to be added (the second is the rounding error of the first).
struct AddSquares {
    static constexpr OpRow kRow{"add_squares", "x[n] -> sum[_]:f64+=", Pass::kUpdate, 0, 2};
    std::vector<ElementRange> ranges;
    void Show(auto& show) const { show("ranges", ranges); }
};

// One step of Adam (Kingma and Ba 2015), or of AdamW with `decay` (Loshchilov and Hutter 2019).
struct AdamUpdate {
    static constexpr OpRow kRow{"adam_update",
                                "gradient[n] -> weights[n]+= m[k]+= v[k]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 14};
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double l2 = 0, decay = 0;  // if a run `decays`: l2 on the gradient, decay on the weight
    std::vector<UpdateRun> runs;
    void Show(auto& show) const {
        show("beta1", beta1);
        show("beta2", beta2);
        show("eps", eps);
        show("l2", l2);
        show("decay", decay);
        show("runs", runs);
    }
};
// As AdamUpdate, with moments as one-byte codes (tensor/dynamic_codes.h), four per i32, and one
// scale per block. Runs begin at multiples of a block, and UpdateRun::kept is UpdateRun::begin.
struct Adam8bitUpdate {
    static constexpr OpRow kRow{"adam8bit_update",
                                "gradient[n] -> weights[n]+= m[k]:i32+= v[k]:i32+= m_scales[s]+="
                                " v_scales[s]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 24};
    AdamUpdate adam;
    void Show(auto& show) const { adam.Show(show); }
};
struct SgdUpdate {
    static constexpr OpRow kRow{"sgd_update",
                                "gradient[n] -> weights[n]+= (momentum[k]+=) (copy[n]+=)",
                                Pass::kUpdate, 0, 6};
    double momentum = 0, dampening = 0, l2 = 0;
    bool nesterov = false;
    std::vector<UpdateRun> runs;
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "momentum" ? std::optional(momentum > 0) : std::nullopt;
    }
    void Show(auto& show) const {
        show("momentum", momentum);
        show("dampening", dampening);
        show("l2", l2);
        show.Flag("nesterov", nesterov);
        show("runs", runs);
    }
};

// One step of Lion (Chen et al. 2023).
struct LionUpdate {
    static constexpr OpRow kRow{"lion_update", "gradient[n] -> weights[n]+= m[k]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 8};
    double beta1 = 0.9, beta2 = 0.99, decay = 0;
    std::vector<UpdateRun> runs;
    void Show(auto& show) const {
        show("beta1", beta1);
        show("beta2", beta2);
        show("decay", decay);
        show("runs", runs);
    }
};
// One step of schedule-free AdamW (Defazio et al. 2024). The weights are y, where gradients are
// taken; z are the weights without averaging. The step provides the share that z gets in the
// average.
struct ScheduleFreeUpdate {
    static constexpr OpRow kRow{"schedule_free_update",
                                "gradient[n] -> weights[n]+= z[k]+= v[k]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 16};
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
    std::vector<UpdateRun> runs;
    void Show(auto& show) const {
        show("beta1", beta1);
        show("beta2", beta2);
        show("eps", eps);
        show("decay", decay);
        show("runs", runs);
    }
};
// Lets passes read the average x = y / beta1 + (1 - 1 / beta1) z (`averaged`), or again y. A copy
// gets x or y in its type. Without a copy, the weights become x, while y is saved in the gradients,
// which no pass uses meanwhile.
struct ScheduleFreeView {
    static constexpr OpRow kRow{"schedule_free_view",
                                "z[k] -> weights[n]+= gradient[n]+= (copy[n]+=)", Pass::kUpdate, 0,
                                3};
    double beta1 = 0.9;
    bool averaged = true;
    std::vector<UpdateRun> runs;
    void Show(auto& show) const {
        show("beta1", beta1);
        show.Flag("averaged", averaged);
        show("runs", runs);
    }
};
// One step of Muon (Jordan et al. 2024) on whole matrices, as torch.optim.Muon: the momentum,
// orthogonalized by five steps of a Newton-Schulz iteration.
struct MuonUpdate {
    static constexpr OpRow kRow{"muon_update",
                                "gradient[n] -> weights[n]+= momentum[k]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 40};
    double momentum = 0.95, decay = 0;
    bool nesterov = true;
    bool adam_size = true;  // updates have the size of AdamW's (Liu et al. 2025)
    std::vector<UpdateMatrix> matrices;
    void Show(auto& show) const {
        show("momentum", momentum);
        show("decay", decay);
        show.Flag("nesterov", nesterov);
        show.Flag("adam_size", adam_size);
        show("matrices", matrices.size());
    }
};

// ---- Adafactor (its tensors: tensor/update_runs.h) ---------------------------------------------

// Adds the squared gradients of each row and each column to sums[], at the index of the moment of
// that row or column. With `sizes`, the sums of squares of each tensor's weights follow.
struct AdafactorSums {
    static constexpr OpRow kRow{"adafactor_sums",
                                "gradient[n] weights[n] -> sums[s]:f64+=", Pass::kUpdate, 0, 4};
    std::vector<FactoredRun> runs;
    int64_t moments = 0;  // count of the row and column sums, before the tensors' sizes
    bool sizes = false;
    void Show(auto& show) const {
        show("runs", runs);
        show.Flag("sizes", sizes);
    }
};
// Updates moments[], the moving averages of the mean squares by row and column, and sets inverse[]:
// a factor for each row and each column, by which gradients are multiplied (vectors: columns only).
struct AdafactorMoments {
    static constexpr OpRow kRow{"adafactor_moments",
                                "sums[s]:f64 -> moments[k]+= inverse[k]+=", Pass::kUpdate, 0, 8};
    std::vector<FactoredTensor> tensors;
    double decay_rate = -0.8, eps_square = 1e-30;
    void Show(auto& show) const {
        show("tensors", tensors.size());
        show("decay_rate", decay_rate);
        show("eps_square", eps_square);
    }
};
// Sums of squares of each tensor's update before the learning rate is applied.
struct AdafactorSizes {
    static constexpr OpRow kRow{"adafactor_sizes",
                                "gradient[n] inverse[k] -> squares[t]:f64+=", Pass::kUpdate, 0, 3};
    std::vector<FactoredRun> runs;
    void Show(auto& show) const { show("runs", runs); }
};
struct AdafactorUpdate {
    static constexpr OpRow kRow{"adafactor_update",
                                "gradient[n] inverse[k] sums[s]:f64 squares[t]:f64"
                                " -> weights[n]+= (copy[n]+=)",
                                Pass::kUpdate, 0, 4};
    std::vector<FactoredRun> runs;
    int64_t moments = 0;  // as AdafactorSums
    double eps_scale = 1e-3, clip_threshold = 1, decay = 0;
    bool scale_parameter = false, relative_step = false;
    void Show(auto& show) const {
        show("eps_scale", eps_scale);
        show("clip_threshold", clip_threshold);
        show("decay", decay);
        show.Flag("scale_parameter", scale_parameter);
        show.Flag("relative_step", relative_step);
        show("runs", runs);
    }
};

}  // namespace weft::program
