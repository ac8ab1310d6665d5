// What was measured of a cluster, as tables: it wins over what is computed of bandwidths and
// overheads. A machine file has it as its member "measured" (`weft plan --measure` writes one):
//     ranks       tensor ranks that all_reduce was measured with
//     products    {"Q4_0": {"1": "90 GFLOP/s", "64": ..}}: by type of the weights and rows
//     cache       bytes of the KV cache that attention of one row reads a second
//     attention   what attention of many rows computes a second
//     op          seconds of an op that is no product, beside its bytes
//     step        seconds of a step beside its ops
//     sync        seconds of an all-reduce within a step, beside all_reduce
//     hop         seconds of a message between stages beside the links'
//     all_reduce  {"8192": "12 us", ..}: by bytes of the vector
// cache, attention, op, step, sync and hop are marked figures. It holds for Weft itself:
// predictions for other runtimes leave it aside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/figure.h"
#include "tensor/dtype.h"

namespace weft::plan {

struct Measured {
    // By rows or bytes, ascending: FLOP/s of products, seconds of all-reduces.
    using Curve = std::map<double, double>;

    int ranks = 1;
    std::map<DType, Curve> products;
    Figure cache, attention, op, step, sync;
    std::optional<Figure> hop;
    Curve all_reduce;

    // Of a product with weights of that type and so many rows. Between what was measured in
    // proportion of the logarithms; below as the first, above as the last. None: the type was not
    // measured, or in far fewer rows.
    std::optional<double> ProductFlops(DType type, double rows) const;
    // Of so many tensor ranks. None: others were measured. Beyond the largest vector in proportion
    // to the bytes.
    std::optional<double> AllReduceSeconds(int tensor_ranks, double bytes) const;
};

// Of the member "measured". Errors go to `outer`.
Measured ReadMeasured(const nlohmann::json& json, ObjectReader& outer);

}  // namespace weft::plan
