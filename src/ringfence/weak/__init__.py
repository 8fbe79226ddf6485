"""The application: training image segmentation from cheap labels instead of full masks.

- files in: volumes, metaimage, orientation, sources/ -> prepare, preparing -> prepared (a set to train on)
- weak labels: labels (sizes, centroids); annotations/ (boxes and sizes, from masks or files)
- tasks: task; synthetic, synthetic_task; box_task, box_rows, varying (augmentation, patches)
- training: settings, box_settings -> compare (checks; one training or many) -> training -> module
- around it: networks, graphs, batches, history, progress, run_folder
- files out: model_file -> predict, image_cases; evaluate
"""
