/* Tensor names of other libraries, and of torchvision before, rewritten to torchvision's of today. */
#include "src/train/model/weights.h"

#include <stdio.h>
#include <string.h>

/* rules: "from=to" or "from=to+N", in this order, each once, where a name, or what follows a '.' in it, begins with from. %3d is a number,
 * the first of which grows by N. "/0" to "/2" are thirds of a tensor's rows. model: what its name begins with. Batch norm of timm's MobileNetV3,
 * and padding of Transformers' MobileNets and EfficientNets, are not torchvision's: these are left out. */
static const struct {
	const char *model, *owner, *rules;
} schemes[] = {
	{"", "", NULL},
	{"resnet", "Transformers'",
	 "resnet.= embedder.embedder.convolution.=conv1. embedder.embedder.normalization.=bn1. encoder.stages.%3d.layers.%3d.=layer%d.%d.+1 "
	 "layer.%3d.convolution.=conv%d.+1 layer.%3d.normalization.=bn%d.+1 shortcut.convolution.=downsample.0. "
	 "shortcut.normalization.=downsample.1. classifier.1.=fc."},
	{"vgg", "timm's", "pre_logits.fc1.=classifier.0. pre_logits.fc2.=classifier.3. head.fc.=classifier.6."},
	{"mobilenet_v2", "timm's",
	 "blocks.0.0.=features.1.conv.first. blocks.1.%3d.=features.%d.conv.+2 blocks.2.%3d.=features.%d.conv.+4 blocks.3.%3d.=features.%d.conv.+7 "
	 "blocks.4.%3d.=features.%d.conv.+11 blocks.5.%3d.=features.%d.conv.+14 blocks.6.%3d.=features.%d.conv.+17 first.conv_dw.=0.0. "
	 "first.bn1.=0.1. first.conv_pw.=1. first.bn2.=2. conv.conv_pw.=conv.0.0. conv.bn1.=conv.0.1. conv_dw.=1.0. conv.bn2.=conv.1.1. "
	 "conv_pwl.=2. bn3.=3. conv_stem.=features.0.0. bn1.=features.0.1. conv_head.=features.18.0. bn2.=features.18.1. classifier.=classifier.1."},
	{"efficientnet", "timm's",
	 "blocks.0.%3d.=features.1.%d.first. first.conv_dw.=block.0.0. first.bn1.=block.0.1. first.se.conv_reduce.=block.1.fc1. "
	 "first.se.conv_expand.=block.1.fc2. first.conv_pw.=block.2.0. first.bn2.=block.2.1. blocks.%3d.%3d.=features.%d.%d.block.+1 "
	 "block.conv_pw.=block.0.0. block.bn1.=block.0.1. conv_dw.=1.0. block.bn2.=block.1.1. se.conv_reduce.=2.fc1. se.conv_expand.=2.fc2. "
	 "conv_pwl.=3.0. bn3.=3.1. conv_stem.=features.0.0. bn1.=features.0.1. conv_head.=features.8.0. bn2.=features.8.1. classifier.=classifier.1."},
	{"convnext", "timm's",
	 "head.norm.=classifier.0. head.fc.=classifier.2. stem.=features.0. stages.0.blocks.=features.1. stages.1.downsample.=features.2. "
	 "stages.1.blocks.=features.3. stages.2.downsample.=features.4. stages.2.blocks.=features.5. stages.3.downsample.=features.6. "
	 "stages.3.blocks.=features.7. gamma=layer_scale conv_dw.=block.0. norm.=block.2. mlp.fc1.=block.3. mlp.fc2.=block.5."},
	{"convnext", "Transformers'",
	 "convnext.= encoder.= classifier.=classifier.2. embeddings.patch_embeddings.=features.0.0. embeddings.layernorm.=features.0.1. "
	 "stages.0.layers.=features.1. stages.1.downsampling_layer.=features.2. stages.1.layers.=features.3. stages.2.downsampling_layer.=features.4. "
	 "stages.2.layers.=features.5. stages.3.downsampling_layer.=features.6. stages.3.layers.=features.7. layer_scale_parameter=layer_scale "
	 "dwconv.=block.0. features.%3d.%3d.layernorm.=features.%d.%d.block.2. pwconv1.=block.3. pwconv2.=block.5. layernorm.=classifier.0."},
	{"vit", "those of torchvision before 0.13", "mlp.linear_1.=mlp.0. mlp.linear_2.=mlp.3."},
	{"vit", "timm's (most of its ViT were trained with --mean 0.5 --deviation 0.5 --interpolation bicubic)",
	 "blocks.%3d.=encoder.layers.encoder_layer_%d. attn.qkv.=self_attention.in_proj_ attn.proj.=self_attention.out_proj. norm1.=ln_1. norm2.=ln_2. "
	 "mlp.fc1.=mlp.0. mlp.fc2.=mlp.3. cls_token=class_token pos_embed=encoder.pos_embedding patch_embed.proj.=conv_proj. norm.=encoder.ln. "
	 "head.=heads.head."},
	{"vit", "Transformers'",
	 "vit.= embeddings.cls_token=class_token embeddings.position_embeddings=encoder.pos_embedding embeddings.patch_embeddings.projection.=conv_proj. "
	 "encoder.layer.%3d.=layers.%d. attention.attention.query.=attention.q_proj. attention.attention.key.=attention.k_proj. "
	 "attention.attention.value.=attention.v_proj. attention.output.dense.=attention.o_proj. intermediate.dense.=mlp.fc1. output.dense.=mlp.fc2. "
	 "layers.%3d.=encoder.layers.encoder_layer_%d. attention.q_proj.weight=self_attention.in_proj_weight/0 "
	 "attention.q_proj.bias=self_attention.in_proj_bias/0 attention.k_proj.weight=self_attention.in_proj_weight/1 "
	 "attention.k_proj.bias=self_attention.in_proj_bias/1 attention.v_proj.weight=self_attention.in_proj_weight/2 "
	 "attention.v_proj.bias=self_attention.in_proj_bias/2 attention.o_proj.=self_attention.out_proj. mlp.fc1.=mlp.0. mlp.fc2.=mlp.3. "
	 "layernorm_before.=ln_1. layernorm_after.=ln_2. layernorm.=encoder.ln. classifier.=heads.head."},
};

/* How many numbers `from` has where `at` begins, and behind them the length of all; -1: it is not there. */
static int match(const char *at, const char *from, int found[3])
{
	int count;

	memset(found, -1, 3 * sizeof *found);
	count = sscanf(at, from, &found[0], &found[1], &found[2]);
	return count >= 0 && found[count] >= 0 ? count : -1;
}

static void rewrite(const char *rules, char name[GN_TENSOR_NAME_MAX])
{
	for (const char *rule = rules, *at = name; rule; rule = strchr(rule, ' ') ? strchr(rule, ' ') + 1 : NULL, at = name) {
		char from[64], to[64] = "";
		struct gn_strbuf out = {0};
		int plus = 0, found[3], count;

		sscanf(rule, "%59[^=]=%63[^ +]%d", from, to, &plus);
		strcat(from, "%n");
		while ((count = match(at, from, found)) < 0 && (at = strchr(at, '.')))
			at++;
		if (count < 0)
			continue;
		gn_strbuf_append(&out, name, (size_t)(at - name));
		gn_strbuf_printf(&out, to, found[0] + plus, found[1]);
		gn_strbuf_puts(&out, at + found[count]);
		snprintf(name, GN_TENSOR_NAME_MAX, "%s", gn_strbuf_text(&out));
		gn_strbuf_release(&out);
	}
}

/* Whether the name ends with that of the first tensor, and all tensors but the last layer's are behind what is before it. */
static int find_prefix(const struct gn_safetensors *file, const struct gn_model *m, const char *name, char prefix[GN_TENSOR_NAME_MAX])
{
	const char *first = gn_model_param(m, 0)->name;
	size_t len = strlen(name), tail = strlen(first);

	if (len < tail || strcmp(name + len - tail, first) || (len > tail && name[len - tail - 1] != '.'))
		return 0;
	snprintf(prefix, GN_TENSOR_NAME_MAX, "%.*s", (int)(len - tail), name);
	return !gn_weights_missing(file, prefix, m, 1, NULL);
}

/* Cuts the prefix that find_prefix() finds off the names; GN_ERR_NOT_FOUND: there is none. */
static enum gn_status cut_prefix(struct gn_safetensors *file, const char *path, const struct gn_model *m, char prefix[GN_TENSOR_NAME_MAX],
				 struct gn_err *err)
{
	char other[GN_TENSOR_NAME_MAX];
	int found = 0;
	size_t len;

	for (size_t i = 0; i < gn_safetensors_count(file) && found < 2; i++)
		found += find_prefix(file, m, gn_safetensors_entry(file, i)->name, found ? other : prefix);
	if (found > 1)
		return gn_err_set(err, GN_ERR_DATA, "%s has all tensors of %s behind '%s' and behind '%s': write a file with one of them", path,
				  gn_model_name(m), prefix, other);
	len = strlen(prefix);
	for (size_t i = 0; i < gn_safetensors_count(file) && found; i++) {
		char *name = gn_safetensors_entry(file, i)->name;

		if (!strncmp(name, prefix, len))
			memmove(name, name + len, strlen(name + len) + 1);
	}
	return found ? GN_OK : GN_ERR_NOT_FOUND;
}

enum gn_status gn_weights_open(const char *path, const struct gn_model *model, struct gn_log *log, struct gn_safetensors **out,
			       struct gn_err *err)
{
	struct gn_safetensors *file;
	enum gn_status status = GN_ERR_NOT_FOUND;

	for (size_t s = 0; s < sizeof schemes / sizeof *schemes && status == GN_ERR_NOT_FOUND; s++) {
		char prefix[GN_TENSOR_NAME_MAX] = "";

		if (strncmp(gn_model_name(model), schemes[s].model, strlen(schemes[s].model)))
			continue;
		if ((status = gn_safetensors_open(path, NULL, &file, err)))
			return status;
		for (size_t i = 0; i < gn_safetensors_count(file); i++)
			rewrite(schemes[s].rules, gn_safetensors_entry(file, i)->name);
		status = cut_prefix(file, path, model, prefix, err);
		if (status)
			gn_safetensors_close(file);
		if (!status && *schemes[s].owner)
			gn_log_info(log, "names in %s are %s", path, schemes[s].owner);
		if (!status && *prefix)
			gn_log_info(log, "names in %s start with '%s', which is left out", path, prefix);
	}
	/* the reader says which are missing */
	if (status == GN_ERR_NOT_FOUND)
		status = gn_safetensors_open(path, NULL, &file, err);
	if (!status)
		*out = file;
	return status;
}
