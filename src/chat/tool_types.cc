#include "chat/tool_types.h"

#include "base/json_digits.h"
#include "chat/answer_calls.h"
#include "chat/template/literals.h"
#include "grammar/schema_types.h"

namespace weft::chat {
namespace {

enum : uint32_t {
    kTextType = 1,
    kNumberType = 2,
    kBoolType = 4,
    kNullType = 8,
    kObjectType = 16,
    kListType = 32,
    kAnyType = 63,
};

const OrderedJson* Member(const OrderedJson& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
}

// Python's constants.
OrderedJson PythonWord(std::string_view text) {
    if (text == "True") return true;
    if (text == "False") return false;
    if (text == "None") return nullptr;
    return OrderedJson(OrderedJson::value_t::discarded);
}

}  // namespace

ToolTypes::ToolTypes(const OrderedJson& tools) {
    if (!tools.is_array()) return;
    grammar::MergeBudget budget;
    for (const OrderedJson& tool : tools) {
        const OrderedJson* function = Member(tool, "function");
        const OrderedJson* name = function == nullptr ? nullptr : Member(*function, "name");
        if (name == nullptr || !name->is_string()) continue;
        Parameters& parameters = functions_[name->get<std::string>()];
        const OrderedJson* schema = Member(*function, "parameters");
        if (schema == nullptr) continue;
        for (const auto& [parameter, types] : grammar::PropertyTypes(*schema, budget)) {
            Mask& mask = parameters[parameter];
            for (const std::string& type : types) mask |= NamedType(type);
        }
    }
}

ToolTypes::Mask ToolTypes::NamedType(std::string_view name) {
    if (name == "string") return kTextType;
    if (name == "number") return kNumberType;
    if (name == "boolean") return kBoolType;
    if (name == "null") return kNullType;
    if (name == "object") return kObjectType;
    if (name == "array") return kListType;
    return kAnyType;
}

ToolTypes::Mask ToolTypes::TypeOf(const OrderedJson& value) {
    if (value.is_string()) return kTextType;
    if (value.is_number() || IsDigits(value)) return kNumberType;
    if (value.is_boolean()) return kBoolType;
    if (value.is_null()) return kNullType;
    return value.is_object() ? kObjectType : kListType;
}

bool ToolTypes::Has(std::string_view function) const {
    return functions_.find(function) != functions_.end();
}

bool ToolTypes::Begins(std::string_view text) const {
    const auto next = functions_.lower_bound(text);
    return next != functions_.end() && next->first.starts_with(text);
}

ToolTypes::Mask ToolTypes::Find(std::string_view function, std::string_view parameter) const {
    const auto parameters = functions_.find(function);
    if (parameters == functions_.end()) return kAnyType;
    auto found = parameters->second.find(parameter);
    if (found == parameters->second.end()) found = parameters->second.find("");
    return found == parameters->second.end() ? Mask{kAnyType} : found->second;
}

bool ToolTypes::IsText(std::string_view function, std::string_view parameter) const {
    return Find(function, parameter) == kTextType;
}

OrderedJson ToolTypes::ValueOf(std::string_view function, std::string_view parameter,
                               std::string_view text) const {
    const Mask mask = Find(function, parameter);
    if (mask == kTextType) return std::string(text);
    OrderedJson json = ReadJson(text);
    if (json.is_discarded()) json = PythonWord(TrimBlanks(text));
    if (json.is_discarded() && (mask & (kObjectType | kListType)) != 0 && mask != kAnyType) {
        // Models and templates also write Python lists and dicts.
        OrderedJson value = ReadPythonValue(text);
        if (value.is_structured()) json = std::move(value);
    }
    if (json.is_discarded()) return std::string(text);
    if (mask == kAnyType) return json;
    if (json.is_string() && (mask & kTextType) == 0) {
        // A quoted number, if the type allows only numbers.
        OrderedJson inner = ReadJson(json.get_ref<const std::string&>());
        if (!inner.is_discarded() && (TypeOf(inner) & mask) != 0) return inner;
    }
    // If a string is allowed, a value of none of the other types is a string.
    const bool other = (TypeOf(json) & mask & ~Mask{kTextType}) != 0;
    if ((mask & kTextType) != 0 && !other) return std::string(text);
    return json;
}

}  // namespace weft::chat
