/* The bundled reference files, so that selftest needs no path. */
#define EMBED(symbol, file)                                                                                            \
	.globl gn_golden_##symbol, gn_golden_##symbol##_end;                                                           \
	gn_golden_##symbol: .incbin file;                                                                              \
	gn_golden_##symbol##_end: .byte 0

	.section .rodata
	EMBED(resnet18_b4_s64, "tests/golden/resnet18-b4-s64-c10.json")
	EMBED(resnet50_b4_s96, "tests/golden/resnet50-b4-s96-c1000.json")
	EMBED(resnet50_b2_s224, "tests/golden/resnet50-b2-s224-c1000.json")
	EMBED(mobilenet_v2_b3_s96, "tests/golden/mobilenet_v2-b3-s96-c7.json")
	EMBED(mobilenet_v3_large_b3_s96, "tests/golden/mobilenet_v3_large-b3-s96-c7.json")
	EMBED(efficientnet_b0_b3_s96, "tests/golden/efficientnet_b0-b3-s96-c7.json")
	EMBED(convnext_tiny_b3_s96, "tests/golden/convnext_tiny-b3-s96-c7.json")
	EMBED(vit_b_16_b2_s64, "tests/golden/vit_b_16-b2-s64-c10.json")
	.section .note.GNU-stack, "", %progbits
