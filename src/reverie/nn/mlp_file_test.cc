#include "reverie/nn/mlp_file.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "reverie/nn/file.h"
#include "reverie/nn/initializer.h"

namespace reverie::nn {
namespace {

class MlpFile : public ::testing::Test {
 protected:
  MlpFile() {
    Random random(std::uint64_t{79});
    initialize_uniform(mlp_, random, parameters_);
  }
  ~MlpFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) { return folder_ + "/" + name; }

  static std::string made_folder() {
    std::string folder = ::testing::TempDir() + "mlp_file_XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    return folder;
  }

  std::string folder_ = made_folder();
  Mlp mlp_ = Mlp::make({{3, 5, 6, 2}, Activation::kTanh, Activation::kNone}).value();
  Parameters parameters_ = mlp_.make_parameters();
};

TEST_F(MlpFile, SavedParametersCanBeLoaded) {
  ASSERT_TRUE(save_mlp(path("a"), mlp_, parameters_, {{"algorithm", "dqn"}}).ok());
  const SavedMlp loaded = load_mlp(path("a")).value();
  EXPECT_EQ(loaded.mlp.spec(), mlp_.spec());
  EXPECT_EQ(loaded.metadata.at("algorithm"), "dqn");
  EXPECT_TRUE(std::equal(parameters_.span().begin(), parameters_.span().end(),
                         loaded.parameters.span().begin()));
}

TEST_F(MlpFile, TensorsHaveTheNamesAndShapesOfASequentialOfLinears) {
  const SafeTensors tensors = mlp_to_tensors(mlp_, parameters_, {});
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight",
                                             "4.bias"}));
  EXPECT_EQ(tensors.find("0.weight")->shape, (std::vector<std::uint64_t>{5, 3}));
  // Row 1 in the file is column 1 in memory.
  EXPECT_EQ(tensors.find("0.weight")->values[3], mlp_.weight(0, parameters_.span())(0, 1));
}

TEST_F(MlpFile, AFileWithoutOurMetadataNeedsTheActivations) {
  SafeTensors tensors = mlp_to_tensors(mlp_, parameters_, {});
  tensors.metadata.clear();
  EXPECT_EQ(mlp_from_tensors(tensors, {}, {}).status().message(),
            "the file does not name its hidden activation; give it as an argument");
  EXPECT_EQ(mlp_from_tensors(tensors, Activation::kTanh, Activation::kNone)->mlp.spec(),
            mlp_.spec());
  tensors.metadata["hidden"] = "relu";
  EXPECT_EQ(mlp_from_tensors(tensors, Activation::kTanh, Activation::kNone).status().message(),
            "the hidden activation is 'tanh', and 'relu' in the file; leave it out");
}

TEST_F(MlpFile, RefusesTensorsThatDoNotFormAChainOfLayers) {
  const auto refusal = [&](std::size_t index, NamedTensor tensor) {
    SafeTensors tensors = mlp_to_tensors(mlp_, parameters_, {});
    tensors.tensors[index] = std::move(tensor);
    return mlp_from_tensors(tensors, {}, {}).status().to_string();
  };
  EXPECT_EQ(refusal(0, {"w", {1}, {0}}),
            "DATA_LOSS: tensor 'w' belongs to no dense layer, which has '0.weight' and '0.bias'");
  EXPECT_EQ(refusal(0, {"8.weight", {1, 2}, {0, 0}}), "DATA_LOSS: layer 0 has no weight");
  EXPECT_EQ(refusal(1, {"0.bias", {4}, {0, 0, 0, 0}}),
            "DATA_LOSS: layer 0 has 5 outputs by its weight and 4 by its bias");
  EXPECT_EQ(refusal(2, {"2.weight", {6, 1}, {0, 0, 0, 0, 0, 0}}),
            "DATA_LOSS: layer 2 has 1 inputs after 5 outputs");
  EXPECT_EQ(refusal(1, {"0.bias", {5, 1}, {0, 0, 0, 0, 0}}),
            "DATA_LOSS: tensor '0.bias' has 2 dimensions, not 1");
  EXPECT_EQ(mlp_from_tensors({}, Activation::kRelu, Activation::kNone).status().message(),
            "there are no layers");
}

TEST_F(MlpFile, MissingFilesAndFoldersAreNotFound) {
  EXPECT_EQ(load_mlp(path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(save_mlp(path("none/a"), mlp_, parameters_).code(), StatusCode::kNotFound);
  EXPECT_EQ(load_mlp(folder_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_file(path("none"), 1).status().message(),
            "cannot open '" + path("none") + "': No such file or directory");
}

TEST_F(MlpFile, AFullDiskLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(save_mlp(path("a"), mlp_, parameters_).ok());
  const std::vector<std::byte> before = read_file(path("a"), 1 << 20).value();
  // Limits files of this process to 100 bytes; the kernel then fails writes as on a full disk.
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = save_mlp(path("a"), mlp_, parameters_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read_file(path("a"), 1 << 20).value(), before);
  EXPECT_EQ(read_file(path("a"), 10).status().code(), StatusCode::kResourceExhausted);
  const std::filesystem::directory_iterator entries(folder_);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

}  // namespace
}  // namespace reverie::nn
