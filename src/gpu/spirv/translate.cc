#include "gpu/spirv/translate.h"

#include "gpu/spirv/writer.h"

namespace weft::gpu::spirv {
namespace {

// The C++ expression of an input; null if no kernel reads it.
const char* InputText(uint32_t builtin) {
    switch (builtin) {
        case 24: return "workgroups()";
        case 26: return "workgroup(first)";
        case 27: return "vec<u32, 3>{{threadIdx.x, 0u, 0u}}";
        case 28: return "invocation(first)";
        case 29: return "threadIdx.x";
        case 36: return "kSubgroup";
        case 38: return "subgroups()";
        case 40: return "(threadIdx.x / kSubgroup)";
        case 41: return "lane()";
        default: return nullptr;
    }
}

class Kernel {
  public:
    Kernel(const Request& request, Module module)
        : request_(request), module_(std::move(module)), expressions_(module_) {}

    Result<Text> Run() {
        const auto& size = module_.local_size;
        if (size[1] * size[2] != 1) {
            expressions_.Fail("workgroups that are not one-dimensional");
        }
        if (size[0] % request_.subgroup != 0 && (size[0] & (size[0] - 1)) != 0) {
            expressions_.Fail("workgroups that are neither whole subgroups nor a power of two");
        }
        std::string args = "struct Args { u32 none; };\n", locals;
        Text text;
        text.local_size = size;
        text.args_bytes = sizeof(uint32_t);
        for (const Instruction& variable : module_.variables) {
            Declare(variable, text, locals, args);
        }
        const std::string body = WriteBody(module_, expressions_);
        text.entry = "weft_";
        for (const char c : request_.name) {
            text.entry += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
        }
        if (!expressions_.status().ok()) {
            return MakeError(ErrorCode::kUnsupported,
                             "kernel {}: the translator of SPIR-V does not know {}", request_.name,
                             expressions_.status().error().message);
        }
        text.source = fmt::format(
            "{}{}{}WEFT_KERNEL({}) {}(const Args args, const uint3 first, const u32* stop_word) "
            "{{\n{}{}}}\n#ifdef WEFT_EMULATED\nWEFT_EMULATED_ENTRY({}, kSubgroup)\n#endif\n",
            Prelude(request_, module_), expressions_.definitions(), args, size[0], text.entry,
            locals, body, text.entry);
        return text;
    }

  private:
    void Declare(const Instruction& variable, Text& text, std::string& locals, std::string& args) {
        const Id type = module_.type(variable.type).args[1];
        switch (Storage(variable.args[0])) {
            case kInput: {
                const auto builtin = module_.Decorated(variable.id, kBuiltIn);
                const char* input = builtin ? InputText(*builtin) : nullptr;
                if (input == nullptr) {
                    return expressions_.Fail(fmt::format("built-in {}", builtin.value_or(0)));
                }
                return expressions_.SetText(variable.id, input);
            }
            case kPushConstant:
                args = fmt::format("typedef {} Args;\n", expressions_.TypeName(type));
                text.args_bytes = module_.SizeBytes(type);
                return expressions_.SetText(variable.id, "args");
            case kStorageBuffer:
                return expressions_.SetText(variable.id, fmt::format("(*(const {}*)stop_word)",
                                                                     expressions_.TypeName(type)));
            case kWorkgroup:
                locals +=
                    fmt::format("WEFT_SHARED {} v{};\n", expressions_.TypeName(type), variable.id);
                text.shared_bytes += (module_.SizeBytes(type) + 15) / 16 * 16;
                return;
            case kFunction:
            case kPrivate:
                if (const Id value = module_.OnlyValue(variable)) {
                    // A table: private memory for it would be scratch.
                    return expressions_.SetText(variable.id, expressions_.Value(value));
                }
                locals += fmt::format(
                    "{} v{}{};\n", expressions_.TypeName(type), variable.id,
                    variable.args.size() > 1 ? " = " + expressions_.Value(variable.args[1]) : "");
                return;
            case kPhysical: break;
        }
        expressions_.Fail(fmt::format("variables of storage class {}", variable.args[0]));
    }

    const Request& request_;
    const Module module_;
    Expressions expressions_;
};

}  // namespace

Result<Text> Translate(const Request& request) {
    WEFT_ASSIGN(Module module, Parse(request));
    return Kernel(request, std::move(module)).Run();
}

}  // namespace weft::gpu::spirv
