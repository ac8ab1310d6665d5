// Finds the fastest shapes of tiles on matrix units (tile_shapes.h) by measuring them on the
// device, and keeps them in a file beside the compiled kernels. Shapes do not affect bits, so ranks
// need not use the same ones.
//
// The file is valid for one device, driver and build of the kernels. If the file is missing,
// damaged or from another device, driver or build, the shapes are measured again. If no file can be
// written, they are not measured, since each start would take that time. No failure here is an
// error: a shape that was not measured is the default shape.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/dispatch/dispatch.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

struct TuneOptions {
    std::string folder{};     // folder of the file; "": no file
    bool again = false;       // measure also the shapes that the file has
    double most_seconds = 2;  // no measurement of a class begins later
    // After this time, the tuner compiles only the first kernel of each class. A class that lacks
    // kernels uses the fastest shape so far in this run, and is measured at the next start.
    double compile_seconds = 4;
    int64_t size = 4096;  // rows and columns of the weights
    std::span<const TileClass> classes = kTileClasses;
    std::function<void()> before_lock{};  // for tests: called before the file is locked
};

// The result of TuneTiles.
struct TuneReport {
    int read = 0, measured = 0, left = 0;  // classes; left: not read, not all measured
    double seconds = 0;
};

// Sets arithmetic.shapes for these kinds of weights. Measures what the file lacks, and adds it to
// the file, which keeps the shapes of other kinds and classes.
TuneReport TuneTiles(gpu::Device& device, std::span<const Decoding> decodings,
                     const TuneOptions& options, Arithmetic& arithmetic);

// The options of this process: the folder of the compiled kernels. WEFT_VULKAN_TUNE=again ignores
// the file. Returns false if WEFT_VULKAN_TUNE=off, or if the device computes on the processor.
bool WantsTuning(const gpu::Description& gpu, const Arithmetic& arithmetic, TuneOptions& options);
// Tunes the kinds of weights that the Program has, and logs the shapes.
void TuneFor(const program::Program& program, gpu::Device& device, Arithmetic& arithmetic);

// One measured shape. seconds: of one product of `rows` rows.
struct TileTime {
    TileShape shape;
    int64_t rows = 0;
    double seconds = 0, tflop_s = 0;
};
struct TileTimes {
    std::vector<TileTime> tiles;  // one or more, in the order of TileCandidates
    bool complete = true;         // false: not all kernels were compiled before the deadline
};
// The times of a product of `rows` rows by a weight of size x size, for all candidates of the
// class. Shapes whose kernels the driver refuses are left out. deadline_ns: after it, no more
// kernels are compiled, except the first one (NowNs()).
Result<TileTimes> MeasureTiles(gpu::Device& device, const Arithmetic& arithmetic, DType dtype,
                               int64_t rows, int64_t size, int64_t deadline_ns);

// The shapes in the file of this device, in one line ("K types: 16 x 64 x 128 ..."); "": none.
std::string TunedText(const gpu::Description& gpu);

}  // namespace weft::backend::on_gpu
