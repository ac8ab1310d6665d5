// Well-known shapes whose layers differ: heads, windows and recurrent state are the published ones.
#include <gtest/gtest.h>

#include "plan/shapes.h"
#include "plan/walk.h"

namespace weft::plan {
namespace {

// Layers with a window may have other heads, and values other columns than keys.
TEST(LayerShapes, HeadsAreThoseOfTheLayer) {
    struct Expected {
        const char* name;
        model::HeadShape full, windowed;  // KV heads, columns of keys, turned ones, heads, values
        int64_t window;
        int64_t windowed_layers;
    };
    for (const Expected& model : std::initializer_list<Expected>{
             {"mimo-v2-flash", {4, 192, 64, 64, 128}, {8, 192, 64, 64, 128}, 129, 39},
             {"step-3.5-flash", {8, 128, 64, 64, 0}, {8, 128, 128, 96, 0}, 512, 33},
             {"laguna-xs.2", {8, 128, 64, 48, 0}, {8, 128, 128, 64, 0}, 512, 30},
             {"trinity-mini", {4, 128, 128, 32, 0}, {4, 128, 128, 32, 0}, 2048, 24},
             {"gemma-4-31b", {4, 512, 512, 32, 0}, {16, 256, 256, 32, 0}, 1024, 50},
             {"k-exaone", {8, 128, 128, 64, 0}, {8, 128, 128, 64, 0}, 128, 36},
             {"command-a", {8, 128, 128, 96, 0}, {8, 128, 128, 96, 0}, 4096, 48}}) {
        SCOPED_TRACE(model.name);
        const auto opened = OpenWalk(model.name);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        const model::Hyper& hyper = opened->walk.hyper();
        EXPECT_EQ(hyper.window, model.window);
        int64_t windowed = 0;
        for (int64_t layer = 0; layer < hyper.layers; ++layer) {
            const model::HeadShape heads = hyper.HeadsOf(layer);
            const model::HeadShape& known = hyper.IsWindowed(layer) ? model.windowed : model.full;
            windowed += hyper.IsWindowed(layer);
            EXPECT_EQ(heads.kv_heads, known.kv_heads) << layer;
            EXPECT_EQ(heads.head_dim, known.head_dim) << layer;
            EXPECT_EQ(heads.rotary_dim, known.rotary_dim) << layer;
            EXPECT_EQ(heads.heads, known.heads) << layer;
            EXPECT_EQ(heads.ValueDim(), known.ValueDim()) << layer;
        }
        EXPECT_EQ(windowed, model.windowed_layers);
    }
}

// Recurrent layers take the same memory whatever the context is: a matrix for each value head and
// the last rows before the convolution.
TEST(LayerShapes, StateIsThatOfTheModel) {
    struct Expected {
        const char* name;
        int64_t heads, layers;
    };
    for (const Expected& model : std::initializer_list<Expected>{{"qwen3.5-0.8b", 16, 24},
                                                                 {"qwen3.5-4b", 32, 32},
                                                                 {"qwen3.5-122b", 64, 48},
                                                                 {"qwen3.5-397b", 64, 60},
                                                                 {"qwen3.6-27b", 48, 64}}) {
        const auto opened = OpenWalk(model.name);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        const model::Recurrent& state = opened->walk.hyper().recurrent;
        EXPECT_EQ(state.heads, model.heads) << model.name;
        EXPECT_EQ(state.key_dim * state.value_dim, 128 * 128) << model.name;
        EXPECT_EQ(opened->walk.hyper().layers, model.layers) << model.name;
    }
}

}  // namespace
}  // namespace weft::plan
