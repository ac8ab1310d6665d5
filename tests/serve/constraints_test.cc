// What is kept of compiled constraints: bounded in number and in bytes, those of late.
#include <gtest/gtest.h>

#include "serve/api/constraint.h"
#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

TEST(KeptConstraints, AreBounded) {
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair());
    ASSERT_TRUE(words.ok());
    Constraints many(**words);
    for (int i = 0; i < 40; ++i) {
        EXPECT_TRUE(many.Compile({"regex", fmt::format("a{{{}}}", i + 1)}).ok());
    }
    EXPECT_EQ(many.kept(), 32u);
    // Errors are kept, too, and each once.
    EXPECT_FALSE(many.Compile({"regex", "("}).ok());
    EXPECT_FALSE(many.Compile({"regex", "("}).ok());
    EXPECT_EQ(many.kept(), 32u);

    // Ten large ones of which about three have room; one alone always has.
    const auto large = [](int i) {
        return ConstraintText{"json_schema",
                              fmt::format(R"({{"type":"string","maxLength":{}}})", 4000 + i)};
    };
    Constraints one(**words, {}, 1);
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(one.Compile(large(i)).ok());
        EXPECT_EQ(one.kept(), 1u);
    }
    const size_t bytes = one.Compile(large(0))->size_bytes();
    Constraints some(**words, {}, 3 * bytes + bytes / 2);
    for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(some.Compile(large(i)).ok());
        EXPECT_EQ(some.kept(), static_cast<size_t>(std::min(i + 1, 3)));
    }
}

}  // namespace
}  // namespace weft::serve
